// SPDX-License-Identifier: Apache-2.0
#include "frame_fixture.h"

static void every_type_reads_back_as_written(void **state)
{
    struct fixture *f = *state;
    struct frame_hello hello = {.protocol = FRAME_PROTOCOL, .source = FRAME_SOURCE_NVML, .pid = 42};
    struct frame_state st = {
        .code = FRAME_STATE_MISMATCH,
        .vendor_code = 18,
        .xid_events_armed = 1,
        .text = "library 550.54, driver 535.104",
        .driver_version = "535.104.05",
    };
    struct frame_entity list[] = {gpu(0, 0), instance(0, 0, 3), gpu(1, 2)};
    struct frame_record records[] = {
        {.entity = 0, .field = 150, .type = FRAME_VALUE_I64, .taken_ns = 150, .value.i64 = 65},
        {.entity = 2,
         .field = 155,
         .type = FRAME_VALUE_DOUBLE,
         .taken_ns = 151,
         .value.f64 = 71.25},
        {.entity = 1, .field = 203, .status = FRAME_NOT_SUPPORTED},
        string_record(2, 3),
    };
    struct {
        struct frame_events head;
        struct frame_event list[1];
    } events = {{1, 1},
                {{.entity = 2, .origin = FRAME_EVENT_KMSG, .xid = 79, .text = "NVRM: Xid"}}};
    struct {
        struct frame_watch head;
        uint16_t ids[3];
    } watch = {{9, 3, {1000000, 2000000, 3000000, 4000000}}, {100, 150, 1001}};
    put(f, FRAME_HELLO, &hello, sizeof(hello));
    put(f, FRAME_STATE, &st, sizeof(st));
    put_entities(f, 1, list, 3);
    put_sample(f, 1, records, 4, "xx535", 5);
    put(f, FRAME_EVENTS, &events, sizeof(events));
    put(f, FRAME_WATCH, &watch, sizeof(struct frame_watch) + sizeof(watch.ids));

    struct frame out;
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_HELLO);
    assert_memory_equal(out.as.hello, &hello, sizeof(hello));
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_STATE);
    assert_memory_equal(out.as.state, &st, sizeof(st));
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_ENTITIES);
    assert_int_equal(out.as.entities.head->count, 3);
    assert_memory_equal(out.as.entities.list, list, sizeof(list));
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_SAMPLE);
    assert_int_equal(out.as.sample.head->watch_id, 7);
    assert_memory_equal(out.as.sample.list, records, sizeof(records));
    struct sv text;
    assert_true(frame_record_string(&out.as.sample.list[3], out.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("535")));
    assert_false(frame_record_string(&out.as.sample.list[0], out.as.sample.strings, &text));
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_EVENTS);
    assert_int_equal(out.as.events.list[0].xid, 79);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_WATCH);
    assert_int_equal(out.as.watch.head->count, 3);
    assert_int_equal(out.as.watch.field_ids[2], 1001);
    assert_int_equal(next(f, &out), 0);
}

static void frames_come_out_whole_however_the_bytes_are_split(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 97; piece += piece < 16 ? 1 : 27) {
        struct fixture f = {0};
        frame_reader_init(&f.reader);
        f.wire = BUF_INIT(1u << 20);
        struct frame_entity e = gpu(0, 0);
        struct frame_record r = {.field = 150, .type = FRAME_VALUE_I64, .value.i64 = 65};
        put_entities(&f, 1, &e, 1);
        for (uint32_t i = 0; i < 5; i++)
            put_sample(&f, 1, &r, 1, "abcdefg", i); // odd lengths: the next frame starts unaligned
        unsigned frames = 0;
        struct frame out;
        do {
            size_t before = f.wire.len;
            feed(&f, piece);
            int rc;
            while ((rc = frame_reader_next(&f.reader, &out, &f.what)) == 1) {
                if (frames)
                    assert_int_equal(out.as.sample.list[0].value.i64, 65);
                frames++;
            }
            assert_int_equal(rc, 0);
            assert_true(f.wire.len < before);
        } while (f.wire.len);
        assert_int_equal(frames, 6);
        frame_reader_deinit(&f.reader);
        buf_deinit(&f.wire);
    }
}

static void a_frame_cut_anywhere_gives_nothing(void **state)
{
    struct fixture *f = *state;
    struct frame_entity e = gpu(0, 0);
    put_entities(f, 1, &e, 1);
    for (size_t cut = 0; cut < f->wire.len; cut++) {
        struct frame_reader r;
        frame_reader_init(&r);
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(&r, &space, &room), 0);
        memcpy(space, f->wire.data, cut);
        frame_reader_commit(&r, cut);
        struct frame out;
        assert_int_equal(frame_reader_next(&r, &out, &f->what), 0);
        frame_reader_deinit(&r);
    }
}

static void the_header_is_checked_before_the_payload_is_awaited(void **state)
{
    (void)state;
    struct {
        struct frame_header header;
        int rc;
        const char *what;
    } cases[] = {
        {{16, FRAME_HELLO, FRAME_PROTOCOL}, 0, NULL},
        {{16, FRAME_HELLO, FRAME_PROTOCOL + 1}, -EPROTO, "protocol"},
        {{16, 0, FRAME_PROTOCOL}, -EPROTO, "type"},
        {{16, FRAME_TYPE_END, FRAME_PROTOCOL}, -EPROTO, "type"},
        {{LIMIT_FRAME_BYTES - 1, FRAME_SAMPLE, FRAME_PROTOCOL}, 0, NULL},
        {{LIMIT_FRAME_BYTES, FRAME_SAMPLE, FRAME_PROTOCOL}, 0, NULL},
        {{LIMIT_FRAME_BYTES + 1, FRAME_SAMPLE, FRAME_PROTOCOL}, -EFBIG, "length"},
        {{UINT32_MAX, FRAME_SAMPLE, FRAME_PROTOCOL}, -EFBIG, "length"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f = {0};
        frame_reader_init(&f.reader);
        f.wire = BUF_INIT(64);
        buf_add(&f.wire, &cases[i].header, sizeof(cases[i].header));
        struct frame out;
        assert_int_equal(next(&f, &out), cases[i].rc);
        if (cases[i].what)
            assert_string_equal(f.what, cases[i].what);
        frame_reader_deinit(&f.reader);
        buf_deinit(&f.wire);
    }
}

static void an_announced_length_alone_allocates_nothing(void **state)
{
    struct fixture *f = *state;
    struct frame_header header = {LIMIT_FRAME_BYTES, FRAME_SAMPLE, FRAME_PROTOCOL};
    buf_add(&f->wire, &header, sizeof(header));
    struct frame out;
    assert_int_equal(next(f, &out), 0);
    char *space;
    size_t room;
    assert_int_equal(frame_reader_space(&f->reader, &space, &room), 0);
    assert_int_equal(room, 4096);
    assert_true(f->reader.input.cap < 16384);
}

static void the_largest_frame_passes_and_one_byte_more_fails_its_writer(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_sample head = {.generation = 1};
    head.count = (LIMIT_FRAME_BYTES - sizeof(head)) / sizeof(struct frame_record);
    size_t spare = LIMIT_FRAME_BYTES - sizeof(head) - head.count * sizeof(struct frame_record);
    head.string_bytes = (uint32_t)spare;
    char *payload = calloc(1, LIMIT_FRAME_BYTES + 1);
    assert_non_null(payload);
    memcpy(payload, &head, sizeof(head));
    struct frame_record *list = (struct frame_record *)(payload + sizeof(head));
    for (size_t i = 0; i < head.count; i++)
        list[i].type = FRAME_VALUE_I64;
    put(f, FRAME_SAMPLE, payload, LIMIT_FRAME_BYTES);
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.sample.head->count, head.count);
    assert_true(f->reader.input.cap <= LIMIT_FRAME_BYTES + 8 + 4096);

    size_t start = frame_begin(&f->wire, FRAME_SAMPLE);
    buf_add(&f->wire, payload, LIMIT_FRAME_BYTES + 1);
    frame_end(&f->wire, start);
    assert_int_equal(f->wire.error, -EFBIG);
    free(payload);
}

static void memory_does_not_grow_with_the_number_of_frames(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_record r = {.field = 150, .type = FRAME_VALUE_I64};
    struct frame out;
    for (unsigned i = 0; i < 3000; i++) {
        put_sample(f, 1, &r, 1, "abc", i % 4);
        assert_int_equal(next(f, &out), 1);
    }
    assert_true(f->reader.input.cap <= 16384);
}

static void a_wrong_hello_is_refused(void **state)
{
    (void)state;
    struct {
        struct frame_hello hello;
        size_t bytes;
        const char *what;
    } cases[] = {
        {{FRAME_PROTOCOL, FRAME_SOURCE_DCGM, 1, 0}, 15, "hello: length"},
        {{FRAME_PROTOCOL, FRAME_SOURCE_DCGM, 1, 0}, 0, "hello: length"},
        {{FRAME_PROTOCOL + 1, FRAME_SOURCE_DCGM, 1, 0}, 16, "hello: protocol"},
        {{FRAME_PROTOCOL, 0, 1, 0}, 16, "hello: source"},
        {{FRAME_PROTOCOL, FRAME_SOURCE_DCGM + 1, 1, 0}, 16, "hello: source"},
        {{FRAME_PROTOCOL, FRAME_SOURCE_DCGM, 0, 0}, 16, "hello: pid"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *fixture = fresh();
        put(fixture, FRAME_HELLO, &cases[i].hello, cases[i].bytes);
        assert_refused(fixture, cases[i].what);
        done(fixture);
    }
}

static void a_wrong_state_is_refused(void **state)
{
    struct frame_state bad[] = {
        {.code = FRAME_STATE_END}, {.xid_events_armed = 2}, {.kmsg_armed = 2}, {.paused = 2}, {0},
    };
    const char *what[] = {"state: code", "state: flag", "state: flag", "state: flag",
                          "state: length"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct fixture *fixture = fresh();
        put(fixture, FRAME_STATE, &bad[i], sizeof(bad[i]) - (i == ARRAY_SIZE(bad) - 1));
        assert_refused(fixture, what[i]);
        done(fixture);
    }
    (void)state;
}

static void text_is_terminated_and_made_utf8(void **state)
{
    struct fixture *f = *state;
    struct frame_entity e = gpu(0, 0);
    memset(e.uuid, 'u', sizeof(e.uuid)); // no NUL at all
    memcpy(e.name, "A\xc3\xa9\xff\xc3(\xed\xa0\x80", 10);
    memset(e.bus_id, 'b', sizeof(e.bus_id));
    memcpy(e.bus_id + sizeof(e.bus_id) - 2, "\xc3\xa9",
           2); // cut in mid-character by the terminator
    put_entities(f, 1, &e, 1);
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    const struct frame_entity *got = out.as.entities.list;
    assert_int_equal(strlen(got->uuid), sizeof(got->uuid) - 1);
    assert_string_equal(got->name, "A\xc3\xa9?\?(?\?\?");
    assert_string_equal(got->bus_id, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb?");
    assert_string_equal(got->legacy_uuid, "");
}

static void a_wrong_entity_is_refused(void **state)
{
    struct {
        struct frame_entity list[3];
        const char *what;
    } cases[] = {
        {{gpu(0, 0), gpu(1, 1), gpu(2, 2)}, NULL},
        {{gpu(0, 0), gpu(1, 1), gpu(1, 2)}, "entities: index of a GPU"},
        {{gpu(0, 0), gpu(1, 1), gpu(LIMIT_GPUS, 2)}, "entities: index of a GPU"},
        {{gpu(0, 0), gpu(1, 1), gpu(LIMIT_GPUS - 1, 2)}, NULL},
        {{gpu(0, 0), gpu(1, 0), gpu(2, 2)}, "entities: parent of a GPU"},
        {{gpu(0, 0), instance(0, 0, 1), instance(0, 0, 2)}, NULL},
        {{gpu(0, 0), instance(0, 0, 1), instance(0, 0, 1)}, "entities: an instance twice"},
        {{gpu(0, 0), instance(0, 3, 1), gpu(1, 2)}, "entities: parent of an instance"},
        {{gpu(0, 0), instance(0, UINT32_MAX, 1), gpu(1, 2)}, "entities: parent of an instance"},
        {{gpu(0, 0), instance(0, 1, 1), gpu(1, 2)}, "entities: parent of an instance"},
        {{gpu(0, 0), instance(1, 0, 1), gpu(1, 2)}, "entities: parent of an instance"},
        {{gpu(0, 0), instance(0, 2, 1), gpu(0, 2)}, "entities: parent of an instance"}, // later
        {{gpu(0, 0), instance(0, 0, UINT32_MAX), gpu(1, 2)}, "entities: instance ids"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *fixture = fresh();
        struct frame out;
        put_entities(fixture, 1, cases[i].list, 3);
        if (cases[i].what)
            assert_refused(fixture, cases[i].what);
        else
            assert_int_equal(next(fixture, &out), 1);
        done(fixture);
    }
    (void)state;
}

static void each_enum_and_flag_of_an_entity_is_checked(void **state)
{
    const char *what[] = {
        "entities: kind",
        "entities: kind",
        "entities: state",
        "entities: flag",
        "entities: flag",
        "entities: a GPU with instance ids",
        "entities: a GPU with instance ids",
    };
    for (size_t i = 0; i < ARRAY_SIZE(what); i++) {
        struct fixture *fixture = fresh();
        struct frame_entity e = gpu(0, 0);
        e.kind = i == 0 ? 0 : i == 1 ? FRAME_ENTITY_KIND_END : e.kind;
        e.state = i == 2 ? FRAME_ENTITY_STATE_END : e.state;
        e.mig_enabled = i == 3 ? 2 : 0;
        e.gpm = i == 4 ? 255 : 0;
        e.gpu_instance_id = i == 5 ? 0 : e.gpu_instance_id;
        e.slices = i == 6 ? 1 : 0;
        put_entities(fixture, 1, &e, 1);
        assert_refused(fixture, what[i]);
        done(fixture);
    }
    (void)state;
}

// Two switches, a GPU with an instance and a compute instance, a CPU; the case hangs on one of
// them.
static int try_part(struct frame_entity e, const char **what)
{
    const struct frame_entity list[] = {
        part(FRAME_ENTITY_SWITCH, 0, 3),
        part(FRAME_ENTITY_SWITCH, 1, 4),
        gpu(5, 2),
        instance(5, 2, 7),
        compute_instance(5, 3, 7, 0),
        part(FRAME_ENTITY_CPU, 5, 0),
        part(FRAME_ENTITY_LINK, 1, 17),
        gpu_link(5, 2, 17),
        part(FRAME_ENTITY_CPU_CORE, 5, 71),
        e,
    };
    struct fixture *fixture = fresh();
    struct frame out;
    put_entities(fixture, 1, list, ARRAY_SIZE(list));
    int rc = next(fixture, &out);
    *what = rc < 0 ? fixture->what : NULL;
    if (rc == 1)
        assert_memory_equal(out.as.entities.list, list, sizeof(list));
    done(fixture);
    return rc;
}

static struct frame_entity with_gi(struct frame_entity e, uint32_t gi)
{
    e.gpu_instance_id = gi;
    return e;
}

static struct frame_entity with_index(struct frame_entity e, uint32_t index)
{
    e.index = index;
    return e;
}

static void a_part_hangs_on_what_it_can_hang_on_and_stands_once(void **state)
{
    (void)state;
#define SW FRAME_ENTITY_SWITCH
#define LINK FRAME_ENTITY_LINK
#define CPU FRAME_ENTITY_CPU
#define CORE FRAME_ENTITY_CPU_CORE
    static const char parent[] = "entities: parent of a part", twice[] = "entities: a part twice",
                      ids[] = "entities: ids of a part", gi[] = "entities: instance id of a part";
    const struct {
        struct frame_entity entity;
        const char *what;
    } cases[] = {
        {part(SW, 9, 5), NULL},
        {part(SW, 9, 4), twice},
        {part(SW, 0, 5), parent},
        {part(SW, UINT32_MAX, 5), parent},
        {part(SW, 9, UINT32_MAX), ids},
        {with_index(part(SW, 9, 5), 0), parent},
        {with_gi(part(SW, 9, 5), 7), gi},
        {part(CPU, 9, 1), NULL},
        {part(CPU, 9, 0), twice},
        {part(CPU, 5, 1), parent},
        {with_index(part(CPU, 9, 1), 5), parent},
        {part(LINK, 0, 17), NULL}, // the same number of another owner
        {part(LINK, 1, 16), NULL},
        {part(LINK, 1, 17), twice},
        {gpu_link(5, 2, 0), NULL},
        {gpu_link(5, 2, 17), twice},
        {gpu_link(4, 2, 0), parent},
        {part(LINK, 2, 0), parent}, // of a GPU, without its index
        {gpu_link(5, 1, 0), parent},
        {gpu_link(5, 3, 0), parent},
        {part(LINK, 5, 0), parent},
        {part(LINK, 8, 0), parent},
        {part(LINK, 9, 0), parent},
        {part(LINK, 10, 0), parent},
        {part(LINK, UINT32_MAX, 0), parent},
        {part(LINK, 1, UINT32_MAX), ids},
        {with_gi(gpu_link(5, 2, 0), 7), gi},
        {part(CORE, 5, 0), NULL},
        {part(CORE, 5, 71), twice},
        {part(CORE, 2, 0), parent},
        {part(CORE, 8, 0), parent},
        {part(CORE, 9, 0), parent},
        {with_index(part(CORE, 5, 0), 5), parent},
        {compute_instance(5, 3, 7, 1), NULL},
        {compute_instance(5, 3, 7, 0), twice},
        {compute_instance(5, 3, 6, 1), parent},
        {compute_instance(4, 3, 7, 1), parent},
        {compute_instance(5, 2, 7, 1), parent},
        {compute_instance(5, 4, 7, 1), parent},
        {compute_instance(5, 3, UINT32_MAX, 1), gi},
        {compute_instance(5, 3, 7, UINT32_MAX), ids},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *what;
        int rc = try_part(cases[i].entity, &what);
        if (rc != (cases[i].what ? -EPROTO : 1))
            fail_msg("case %zu: %d, %s", i, rc, what ? what : "taken");
        if (cases[i].what)
            assert_string_equal(what, cases[i].what);
    }
}

static void parts_have_no_slices_mig_mode_or_instance_entity_id(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct frame_entity e = part(LINK, 1, 3);
        const char *what;
        e.instance_entity_id = i == 1 ? 0 : e.instance_entity_id;
        e.slices = i == 2;
        e.mig_enabled = i == 3;
        assert_int_equal(try_part(e, &what), i == 0 ? 1 : -EPROTO);
        if (i > 0)
            assert_string_equal(what, "entities: ids of a part");
    }
}

static void slices_never_pass_the_board(void **state)
{
    struct fixture *f = *state;
    struct frame_entity list[] = {gpu(0, 0), instance(0, 0, 1)};
    list[1].slices = 7;
    put_entities(f, 1, list, 2);
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    list[1].slices = 8;
    put_entities(f, 2, list, 2);
    assert_refused(f, "entities: slices");
}

static void as_many_entities_as_the_limit_and_no_more(void **state)
{
    struct frame_entity *list = calloc(LIMIT_ENTITIES + 1, sizeof(*list));
    assert_non_null(list);
    list[0] = gpu(0, 0);
    for (uint32_t i = 1; i <= LIMIT_ENTITIES; i++)
        list[i] = instance(0, 0, i);
    for (uint32_t count = LIMIT_ENTITIES - 1; count <= LIMIT_ENTITIES + 1; count++) {
        struct fixture *fixture = fresh();
        struct frame out;
        put_entities(fixture, 1, list, count);
        if (count <= LIMIT_ENTITIES)
            assert_int_equal(next(fixture, &out), 1);
        else
            assert_refused(fixture, "entities: count");
        done(fixture);
    }
    free(list);
    (void)state;
}

static void counts_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 2, 3, UINT32_MAX, UINT32_MAX / 24, 0x0aaaaaab, 0x80000001};
#define HEAD(t) sizeof(struct t), offsetof(struct t, count)
    static const struct {
        enum frame_type type;
        size_t head, place, each;
        const char *what;
    } types[] = {
        {FRAME_ENTITIES, HEAD(frame_entities), sizeof(struct frame_entity), "entities: length"},
        {FRAME_SAMPLE, HEAD(frame_sample), sizeof(struct frame_record), "sample: length"},
        {FRAME_EVENTS, HEAD(frame_events), sizeof(struct frame_event), "events: length"},
        {FRAME_WATCH, HEAD(frame_watch), sizeof(uint16_t), "watch: length"},
        {FRAME_HEALTH, HEAD(frame_health), sizeof(struct frame_verdict), "health: length"},
        {FRAME_PEERS, HEAD(frame_peers), sizeof(struct frame_peer), "peers: length"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
            char payload[4096] = {0};
            memcpy(payload + types[t].place, &counts[i], sizeof(counts[i]));
            struct fixture *fixture = fresh();
            // Room for exactly one.
            put(fixture, types[t].type, payload, types[t].head + types[t].each);
            assert_refused(fixture, types[t].what);
            done(fixture);
        }
    }
    for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
        const char payload[256] = {0};
        struct fixture *fixture = fresh();
        put(fixture, types[t].type, payload, types[t].head - 1);
        assert_refused(fixture, types[t].what);
        done(fixture);
    }
}

static void string_bytes_are_part_of_the_length(void **state)
{
    (void)state;
    static const uint32_t string_bytes[] = {3, 5, UINT32_MAX, UINT32_MAX - 3};
    for (size_t i = 0; i < ARRAY_SIZE(string_bytes); i++) {
        char payload[sizeof(struct frame_sample) + 4] = {0};
        memcpy(payload + offsetof(struct frame_sample, string_bytes), &string_bytes[i], 4);
        struct fixture *fixture = fresh();
        put(fixture, FRAME_SAMPLE, payload, sizeof(payload));
        assert_refused(fixture, "sample: length");
        done(fixture);
    }
}

static void a_wrong_record_is_refused(void **state)
{
    (void)state;
    struct {
        struct frame_record record;
        const char *what;
    } cases[] = {
        {{.entity = 1, .type = FRAME_VALUE_I64}, "sample: entity"},
        {{.entity = UINT32_MAX, .type = FRAME_VALUE_I64}, "sample: entity"},
        {{.status = FRAME_STATUS_END}, "sample: status"},
        {{.type = FRAME_VALUE_TYPE_END}, "sample: value type"},
        {{.status = FRAME_OK, .type = FRAME_VALUE_NONE}, "sample: value type"},
        {{.status = FRAME_LOST, .type = FRAME_VALUE_I64}, "sample: value type"},
        {string_record(0, 6), "sample: string"},
        {string_record(6, 0), "sample: string"},
        {string_record(UINT32_MAX, 1), "sample: string"},
        {string_record(1, UINT32_MAX), "sample: string"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *fixture = fresh();
        one_gpu(fixture);
        put_sample(fixture, 1, &cases[i].record, 1, "12345", 5);
        assert_refused(fixture, cases[i].what);
        done(fixture);
    }
}

static void a_sample_head_out_of_range_is_refused(void **state)
{
    (void)state;
    struct frame_sample bad[] = {
        {.classes = 1u << FIELD_CLASS_COUNT},
        {.started_ns = 2, .ended_ns = 1},
    };
    const char *what[] = {"sample: classes", "sample: ends before it starts"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct fixture *fixture = fresh();
        put(fixture, FRAME_SAMPLE, &bad[i], sizeof(bad[i]));
        assert_refused(fixture, what[i]);
        done(fixture);
    }
}

static void strings_at_the_very_end_are_inside(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_record list[] = {string_record(0, 5), string_record(5, 0), string_record(4, 1)};
    put_sample(f, 1, list, 3, "12345", 5);
    struct frame out;
    struct sv text;
    assert_int_equal(next(f, &out), 1);
    assert_true(frame_record_string(&out.as.sample.list[0], out.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("12345")));
    assert_true(frame_record_string(&out.as.sample.list[1], out.as.sample.strings, &text));
    assert_int_equal(text.len, 0);
    assert_true(frame_record_string(&out.as.sample.list[2], out.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("5")));
}

static void string_values_are_made_utf8(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    // The first ends inside a character whose rest begins the second: each is mended alone.
    struct frame_record list[] = {string_record(0, 2), string_record(2, 2), string_record(4, 2)};
    put_sample(f, 1, list, 3, "a\xc3\xa9z\0y", 6);
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.sample.strings.len, 6);
    assert_memory_equal(out.as.sample.strings.ptr, "a?\?z?y", 6);
}

static void overlapping_strings_that_cannot_be_mended_are_refused(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_record list[] = {string_record(0, 2), string_record(1, 1)};
    put_sample(f, 1, list, 2, "\xc3\xa9", 2);
    assert_refused(f, "sample: strings overlap");
}

static void a_double_that_is_not_finite_becomes_invalid(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_record list[] = {
        {.field = 155, .type = FRAME_VALUE_DOUBLE, .value.f64 = (double)NAN},
        {.field = 155, .type = FRAME_VALUE_DOUBLE, .value.f64 = (double)-INFINITY},
        {.field = 155, .type = FRAME_VALUE_DOUBLE, .value.f64 = 1.5},
    };
    put_sample(f, 1, list, 3, "", 0);
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(out.as.sample.list[i].status, FRAME_INVALID);
        assert_int_equal(out.as.sample.list[i].type, FRAME_VALUE_NONE);
    }
    assert_int_equal(out.as.sample.list[2].status, FRAME_OK);
}

static void samples_and_events_of_another_generation_come_empty(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_record far = {.entity = 999, .type = FRAME_VALUE_I64};
    struct {
        struct frame_events head;
        struct frame_event list[1];
    } events = {{2, 1}, {{.entity = 999, .origin = FRAME_EVENT_NVML}}};
    put_sample(f, 2, &far, 1, "abc", 3);
    put(f, FRAME_EVENTS, &events, sizeof(events));
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.sample.head->count, 0);
    assert_int_equal(out.as.sample.strings.len, 0);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.events.head->count, 0);
    // And the next frame begins where it should.
    struct frame_record near = {.entity = 0, .type = FRAME_VALUE_I64};
    put_sample(f, 1, &near, 1, "", 0);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.sample.head->count, 1);
}

static void a_refused_list_leaves_the_one_before(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct frame_entity list[] = {gpu(0, 0), gpu(1, 0)};
    put_entities(f, 2, list, 2);
    assert_refused(f, "entities: parent of a GPU");
    assert_int_equal(f->reader.entity_count, 1);
    assert_int_equal(f->reader.generation, 1);
}

static void events_name_a_gpu_and_nothing_else(void **state)
{
    (void)state;
    struct frame_event bad[] = {
        {.entity = 2, .origin = FRAME_EVENT_NVML},
        {.entity = 1, .origin = FRAME_EVENT_NVML}, // an instance
        {.entity = 0, .origin = 0},
        {.entity = 0, .origin = FRAME_EVENT_ORIGIN_END},
    };
    const char *what[] = {"events: entity", "events: entity", "events: origin", "events: origin"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct {
            struct frame_events head;
            struct frame_event list[1];
        } events = {{1, 1}, {bad[i]}};
        struct frame_entity list[] = {gpu(0, 0), instance(0, 0, 1)};
        struct fixture *fixture = fresh();
        struct frame out;
        put_entities(fixture, 1, list, 2);
        assert_int_equal(next(fixture, &out), 1);
        put(fixture, FRAME_EVENTS, &events, sizeof(events));
        assert_refused(fixture, what[i]);
        done(fixture);
    }
}

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < FRAME_STATUS_END; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(frame_status_text((enum frame_status)i),
                                    frame_status_text((enum frame_status)j));
    for (int i = 0; i < FRAME_STATE_END; i++)
        assert_string_not_equal(frame_state_text((enum frame_state_code)i), "unknown");
    for (int i = 0; i < FRAME_ENTITY_STATE_END; i++)
        assert_string_not_equal(frame_entity_state_text((enum frame_entity_state)i), "unknown");
    assert_string_equal(frame_status_text(FRAME_NOT_SUPPORTED), "not_supported");
    assert_string_equal(frame_state_text(FRAME_STATE_NO_LIBRARY), "no_library");
    assert_string_equal(frame_entity_state_text(FRAME_ENTITY_LOST), "lost");
    assert_string_equal(frame_status_text(FRAME_STATUS_END), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_type_reads_back_as_written),
        TEST(frames_come_out_whole_however_the_bytes_are_split),
        TEST(a_frame_cut_anywhere_gives_nothing),
        TEST(the_header_is_checked_before_the_payload_is_awaited),
        TEST(an_announced_length_alone_allocates_nothing),
        TEST(the_largest_frame_passes_and_one_byte_more_fails_its_writer),
        TEST(memory_does_not_grow_with_the_number_of_frames),
        TEST(a_wrong_hello_is_refused),
        TEST(a_wrong_state_is_refused),
        TEST(text_is_terminated_and_made_utf8),
        TEST(a_wrong_entity_is_refused),
        TEST(each_enum_and_flag_of_an_entity_is_checked),
        TEST(a_part_hangs_on_what_it_can_hang_on_and_stands_once),
        TEST(parts_have_no_slices_mig_mode_or_instance_entity_id),
        TEST(slices_never_pass_the_board),
        TEST(as_many_entities_as_the_limit_and_no_more),
        TEST(counts_that_do_not_add_up_are_refused),
        TEST(string_bytes_are_part_of_the_length),
        TEST(a_wrong_record_is_refused),
        TEST(a_sample_head_out_of_range_is_refused),
        TEST(strings_at_the_very_end_are_inside),
        TEST(string_values_are_made_utf8),
        TEST(overlapping_strings_that_cannot_be_mended_are_refused),
        TEST(a_double_that_is_not_finite_becomes_invalid),
        TEST(samples_and_events_of_another_generation_come_empty),
        TEST(a_refused_list_leaves_the_one_before),
        TEST(events_name_a_gpu_and_nothing_else),
        TEST(every_code_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
