// SPDX-License-Identifier: Apache-2.0
// Frames beside states, lists and samples: events, watches, health, peers, control.
#include "frame_fixture.h"

// --- Health, peers, control ---

static int put_health(struct fixture *f, uint32_t generation, const struct frame_verdict *list,
                      uint32_t count, struct frame *out)
{
    const struct frame_health head = {.generation = generation, .count = count, .taken_ns = 5};
    size_t start = frame_begin(&f->wire, FRAME_HEALTH);
    buf_add(&f->wire, &head, sizeof(head));
    buf_add(&f->wire, list, count * sizeof(*list));
    frame_end(&f->wire, start);
    return next(f, out);
}

static int put_peers(struct fixture *f, uint32_t generation, const struct frame_peer *list,
                     uint32_t count, struct frame *out)
{
    const struct frame_peers head = {.generation = generation, .count = count, .taken_ns = 5};
    size_t start = frame_begin(&f->wire, FRAME_PEERS);
    buf_add(&f->wire, &head, sizeof(head));
    buf_add(&f->wire, list, count * sizeof(*list));
    frame_end(&f->wire, start);
    return next(f, out);
}

// 0 a switch, 1 a GPU, 2 its instance, 3 another GPU; generation 1.
static void mixed(struct fixture *f)
{
    const struct frame_entity list[] = {part(FRAME_ENTITY_SWITCH, 0, 0), gpu(0, 1),
                                        instance(0, 1, 1), gpu(1, 3)};
    struct frame out;
    put_entities(f, 1, list, ARRAY_SIZE(list));
    assert_int_equal(next(f, &out), 1);
}

static void a_verdict_is_on_a_gpu_and_one_system(void **state)
{
    (void)state;
    const struct {
        struct frame_verdict verdict;
        const char *what;
    } cases[] = {
        {{1, 1, 10, 0}, NULL},
        {{3, 1u << 31, 20, UINT32_MAX}, NULL},
        {{1, UINT32_MAX, 20, 97}, NULL},
        {{0, 1, 10, 0}, "health: entity"}, // a switch
        {{2, 1, 10, 0}, "health: entity"}, // an instance
        {{4, 1, 10, 0}, "health: entity"},
        {{UINT32_MAX, 1, 10, 0}, "health: entity"},
        {{1, 0, 10, 0}, "health: system"},
        {{1, 3, 10, 0}, "health: system"},
        {{1, 0x7fffffff, 10, 0}, "health: system"},
        {{1, 1, 0, 0}, "health: result"},
        {{1, 1, 11, 0}, "health: result"},
        {{1, 1, 30, 0}, "health: result"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *fixture = fresh();
        struct frame out;
        mixed(fixture);
        int rc = put_health(fixture, 1, &cases[i].verdict, 1, &out);
        assert_int_equal(rc, cases[i].what ? -EPROTO : 1);
        if (cases[i].what)
            assert_string_equal(fixture->what, cases[i].what);
        else
            assert_memory_equal(out.as.health.list, &cases[i].verdict, sizeof(cases[i].verdict));
        done(fixture);
    }
}

static void peers_are_gpus(void **state)
{
    (void)state;
    const struct {
        struct frame_peer peer;
        const char *what;
    } cases[] = {
        {{1, 3, 0, 0}, NULL},
        {{3, 1, 6, 0}, NULL},
        {{1, 3, 99, 0}, NULL}, // a later driver's: shown as unknown
        {{0, 3, 0, 0}, "peers: entity"},
        {{1, 2, 0, 0}, "peers: entity"},
        {{1, 4, 0, 0}, "peers: entity"},
        {{UINT32_MAX, 1, 0, 0}, "peers: entity"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture *fixture = fresh();
        struct frame out;
        mixed(fixture);
        int rc = put_peers(fixture, 1, &cases[i].peer, 1, &out);
        assert_int_equal(rc, cases[i].what ? -EPROTO : 1);
        if (cases[i].what)
            assert_string_equal(fixture->what, cases[i].what);
        else
            assert_memory_equal(out.as.peers.list, &cases[i].peer, sizeof(cases[i].peer));
        done(fixture);
    }
}

static void health_and_peers_have_their_ceilings(void **state)
{
    (void)state;
    const uint32_t most_peers = LIMIT_GPUS * LIMIT_GPUS;
    struct frame_verdict *verdicts = calloc(LIMIT_VERDICTS + 1, sizeof(*verdicts));
    struct frame_peer *peers = calloc(most_peers + 1, sizeof(*peers));
    assert_true(verdicts && peers);
    for (uint32_t i = 0; i <= LIMIT_VERDICTS; i++)
        verdicts[i] = (struct frame_verdict){1, 1, 10, i};
    for (uint32_t i = 0; i <= most_peers; i++)
        peers[i] = (struct frame_peer){1, 3, 0, 0};
    for (int over = -1; over <= 1; over++) {
        struct fixture *fixture = fresh();
        struct frame out;
        mixed(fixture);
        int rc = put_health(fixture, 1, verdicts, (uint32_t)(LIMIT_VERDICTS + over), &out);
        assert_int_equal(rc, over > 0 ? -EPROTO : 1);
        if (over > 0)
            assert_string_equal(fixture->what, "health: length");
        done(fixture);
        fixture = fresh();
        mixed(fixture);
        rc = put_peers(fixture, 1, peers, (uint32_t)((int)most_peers + over), &out);
        assert_int_equal(rc, over > 0 ? -EPROTO : 1);
        if (over > 0)
            assert_string_equal(fixture->what, "peers: length");
        done(fixture);
    }
    free(verdicts);
    free(peers);
}

static void health_and_peers_of_another_generation_come_empty(void **state)
{
    struct fixture *f = *state;
    const struct frame_verdict far_verdict = {999, 0, 7, 0};
    const struct frame_peer far_peer = {999, 999, 0, 0};
    struct frame out;
    mixed(f);
    assert_int_equal(put_health(f, 2, &far_verdict, 1, &out), 1);
    assert_int_equal(out.as.health.head->count, 0);
    assert_int_equal(put_peers(f, 2, &far_peer, 1, &out), 1);
    assert_int_equal(out.as.peers.head->count, 0);
    assert_int_equal(put_peers(f, 1, NULL, 0, &out), 1); // the next begins where it should
}

static void a_control_is_a_known_command_of_its_length(void **state)
{
    (void)state;
    const struct {
        enum frame_type type;
        size_t bytes;
        uint32_t command;
        const char *what;
    } cases[] = {
        {FRAME_CONTROL, 8, FRAME_COMMAND_PAUSE, NULL},
        {FRAME_CONTROL, 8, FRAME_COMMAND_RESUME, NULL},
        {FRAME_CONTROL, 8, 0, "control: command"},
        {FRAME_CONTROL, 8, FRAME_COMMAND_END, "control: command"},
        {FRAME_CONTROL, 8, UINT32_MAX, "control: command"},
        {FRAME_CONTROL, 7, FRAME_COMMAND_PAUSE, "control: length"},
        {FRAME_CONTROL, 9, FRAME_COMMAND_PAUSE, "control: length"},
        {FRAME_CONTROL_DONE, 128, 0, NULL},
        {FRAME_CONTROL_DONE, 127, 0, "control done: length"},
        {FRAME_CONTROL_DONE, 129, 0, "control done: length"},
    };
    assert_int_equal(sizeof(struct frame_control_done), 128);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char payload[256] = {0};
        memcpy(payload, &cases[i].command, sizeof(cases[i].command));
        struct fixture *fixture = fresh();
        struct frame out;
        put(fixture, cases[i].type, payload, cases[i].bytes);
        assert_int_equal(next(fixture, &out), cases[i].what ? -EPROTO : 1);
        if (cases[i].what)
            assert_string_equal(fixture->what, cases[i].what);
        done(fixture);
    }
}

static void the_answer_to_a_control_and_the_engine_are_made_text(void **state)
{
    struct fixture *f = *state;
    struct frame_control_done answer = {.number = 7, .code = INT32_MIN};
    struct frame_state st = {.code = FRAME_STATE_FAILED, .profiling_code = -37, .paused = 1};
    struct frame out;
    memset(answer.text, 0xff, sizeof(answer.text));
    memset(st.engine, 0xff, sizeof(st.engine));
    put(f, FRAME_CONTROL_DONE, &answer, sizeof(answer));
    put(f, FRAME_STATE, &st, sizeof(st));
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.control_done->number, 7);
    assert_int_equal(out.as.control_done->code, INT32_MIN);
    assert_int_equal(strspn(out.as.control_done->text, "?"), 119);
    assert_int_equal(strlen(out.as.control_done->text), 119);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.state->profiling_code, -37);
    assert_int_equal(strspn(out.as.state->engine, "?"), 127);
    assert_int_equal(strlen(out.as.state->engine), 127);
}

static void event_text_is_terminated(void **state)
{
    struct fixture *f = *state;
    one_gpu(f);
    struct {
        struct frame_events head;
        struct frame_event list[1];
    } events = {{1, 1}, {{.origin = FRAME_EVENT_KMSG}}};
    memset(events.list[0].text, 'x', sizeof(events.list[0].text));
    put(f, FRAME_EVENTS, &events, sizeof(events));
    struct frame out;
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(strlen(out.as.events.list[0].text), 159);
}

static void a_watch_has_periods_and_ascending_ids(void **state)
{
    (void)state;
    struct {
        uint64_t period;
        uint16_t ids[3];
        const char *what;
    } cases[] = {
        {1000000, {1, 2, 3}, NULL},
        {999999, {1, 2, 3}, "watch: period"},
        {0, {1, 2, 3}, "watch: period"},
        {1000000, {1, 1, 3}, "watch: field ids"},
        {1000000, {2, 1, 3}, "watch: field ids"},
        {1000000, {1, 3, 2}, "watch: field ids"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct {
            struct frame_watch head;
            uint16_t ids[3];
        } watch = {{1, 3, {1000000, 1000000, 1000000, cases[i].period}}, {0}};
        memcpy(watch.ids, cases[i].ids, sizeof(watch.ids));
        struct fixture *fixture = fresh();
        struct frame out;
        put(fixture, FRAME_WATCH, &watch, sizeof(struct frame_watch) + sizeof(watch.ids));
        if (cases[i].what)
            assert_refused(fixture, cases[i].what);
        else
            assert_int_equal(next(fixture, &out), 1);
        done(fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(event_text_is_terminated),
        TEST(a_verdict_is_on_a_gpu_and_one_system),
        TEST(peers_are_gpus),
        TEST(health_and_peers_have_their_ceilings),
        TEST(health_and_peers_of_another_generation_come_empty),
        TEST(a_control_is_a_known_command_of_its_length),
        TEST(the_answer_to_a_control_and_the_engine_are_made_text),
        TEST(a_watch_has_periods_and_ascending_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
