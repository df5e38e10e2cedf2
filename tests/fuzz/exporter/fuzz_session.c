// SPDX-License-Identifier: Apache-2.0
// What source processes say, any bytes: through the frame readers into the inventories, their join
// and onto pages. Byte 0: bits 0 and 1 choose the devices, bit 2 that there are two sources. Byte 1
// is the size of the pieces that the stream of one comes in. Of two, the streams come in turns: a
// byte (bit 0: DCGM's, bit 1: its helper is gone first), two bytes of length, so many bytes.
// Whatever the frames hold, what comes out is a page.
#include "page_check.h"
#include "render_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGES_MAX 6 // a page takes longer than what led to it

// Of each level, of each source's own, and what only tables or windows give.
static const char two_sources_csv[] =
    "DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SERIAL, label, s\n"
    "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n"
    "DCGM_FI_DEV_FB_USED, gauge, u\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\n"
    "DCGM_FI_PROF_DRAM_ACTIVE, gauge, m\nDCGM_FI_DEV_NVSWITCH_VOLTAGE_MVOLT, gauge, v\n"
    "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX, counter, l\nDCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, c\n"
    "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, h\nDCGM_EXP_GPU_HEALTH_STATUS, gauge, e\n"
    "DCGM_EXP_P2P_STATUS, gauge, p\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, r\n"
    "DCGM_EXP_XID_ERRORS_COUNT, gauge, X\nDCGM_EXP_XID_ERRORS_TOTAL, counter, X\n"
    "DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, C\nDCGM_EXP_CLOCK_EVENTS_TOTAL, counter, C\n";

struct session {
    struct fixture *fixture;
    struct source {
        struct inventory *inventory;
        struct frame_reader reader;
        int rc;
    } sources[DEVICE_SOURCE_COUNT];
    unsigned pages;
};

// --- What holds of two lists joined ---

static void check_twin(const struct device_view *v, size_t i, enum device_source source)
{
    const struct inventory_entity *e = &v->primary->entities[i];
    const struct inventory_entity *twin = device_view_entity(v, i, source);
    if (!twin)
        return;
    size_t place = (size_t)(twin - v->sources[source]->entities);
    page_must(place < v->sources[source]->entity_count);
    page_must(twin->info.kind == e->info.kind);
    page_must(device_view_place(v, source, place) == i); // of one and no other
    const struct inventory_entity *parent = device_view_entity(v, e->info.parent, source);
    page_must(parent == &v->sources[source]->entities[twin->info.parent]);
}

static void check_value(const struct device_view *v, size_t i, const struct field_info *field,
                        const struct fixture *f)
{
    enum device_source source = DEVICE_SOURCE_COUNT, found;
    size_t place = inventory_value_place(v->primary, i, field);
    struct device_slots slots = device_view_slots(v, field->id);
    uint64_t horizon_ns = inventory_horizon_ns(f->config.period_ns[field->cost]);
    const struct inventory_value *value =
        device_view_value(v, place, slots, horizon_ns, f->now_ns, &source);
    const struct inventory_value *shown =
        device_view_find(v, i, field, f->config.period_ns, f->now_ns, &found);
    page_must(!value || (source < DEVICE_SOURCE_COUNT && value->status < FRAME_STATUS_END));
    page_must(!value || v->sources[source]);
    page_must(!shown || (shown->status == FRAME_OK && v->sources[found]));
    page_must(device_view_status(v, i, field->id) < FRAME_STATUS_END);
    const struct inventory_value *label = device_view_label(v, i, field);
    page_must(!label || label->type != FRAME_VALUE_NONE);
}

static void check_view(const struct session *s)
{
    const struct device_view *v = &s->fixture->view; // the page's
    for (size_t i = 0; i < v->primary->entity_count; i++) {
        page_must(inventory_top(v->primary, i) <= i);
        for (unsigned source = 0; source < DEVICE_SOURCE_COUNT; source++)
            check_twin(v, i, (enum device_source)source);
        for (size_t c = 0; i < 4 && c < s->fixture->config.counters.count; c++)
            check_value(v, i, s->fixture->config.counters.rows[c].field, s->fixture);
    }
}

// --- Frames ---

static void show(struct session *s)
{
    if (s->pages++ >= PAGES_MAX)
        return;
    for (int format = 0; format < TEXT_FORMAT_COUNT; format++)
        page_check(fixture_page(s->fixture, (enum text_format)format), (enum text_format)format);
    check_view(s);
}

// Frames name the watch and the time of whoever recorded them: here they are of now.
static void apply(struct session *s, struct inventory *inv, struct frame *frame)
{
    struct frame_sample head;
    if (frame->type == FRAME_SAMPLE) {
        head = *frame->as.sample.head;
        head.watch_id = inv->watch_id;
        frame->as.sample.head = &head;
        s->fixture->now_ns = head.ended_ns;
    }
    page_must(inventory_apply(inv, frame) == 0);
    page_must(exp_counts_take(s->fixture->exp, inv, frame) == 0);
    inventory_expire(inv, s->fixture->config.period_ns, s->fixture->now_ns);
    page_must(inv->verdict_count <= LIMIT_VERDICTS);
    for (size_t i = 0; i < inv->verdict_count; i++)
        page_must(inv->entities[inv->verdicts[i].entity].info.kind == FRAME_ENTITY_GPU);
    for (size_t i = 0; i < inv->peer_count; i++)
        page_must(inv->entities[inv->peers[i].entity].info.kind == FRAME_ENTITY_GPU &&
                  inv->entities[inv->peers[i].peer].info.kind == FRAME_ENTITY_GPU);
    if (frame->type == FRAME_SAMPLE || frame->type == FRAME_EVENTS)
        show(s);
}

static void feed(struct session *s, enum device_source which, const uint8_t *bytes, size_t size)
{
    struct source *source = &s->sources[which];
    while (source->rc == 0 && size > 0) {
        char *space;
        size_t room;
        page_must(frame_reader_space(&source->reader, &space, &room) == 0);
        size_t piece = size < room ? size : room;
        memcpy(space, bytes, piece);
        frame_reader_commit(&source->reader, piece);
        bytes += piece;
        size -= piece;
        struct frame frame;
        const char *what;
        while ((source->rc = frame_reader_next(&source->reader, &frame, &what)) == 1)
            apply(s, source->inventory, &frame);
    }
}

// Another helper begins a stream of its own.
static void replace_helper(struct source *source)
{
    inventory_disconnect(source->inventory);
    frame_reader_deinit(&source->reader);
    frame_reader_init(&source->reader);
    source->rc = 0;
}

static void play_two(struct session *s, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        uint8_t turn = data[0];
        size_t length = (size_t)data[1] | (size_t)data[2] << 8;
        data += 3;
        size -= 3;
        length = length < size ? length : size;
        if (turn & 2)
            replace_helper(&s->sources[DEVICE_SOURCE_DCGM]);
        feed(s, turn & 1 ? DEVICE_SOURCE_DCGM : DEVICE_SOURCE_NVML, data, length);
        data += length;
        size -= length;
    }
}

static void play_one(struct session *s, size_t piece, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size; at += piece)
        feed(s, DEVICE_SOURCE_NVML, data + at, piece < size - at ? piece : size - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const selections[] = {"f", "g", "i", "g+i"};
    if (size < 2)
        return 0;
    bool two = data[0] & 4;
    struct session s = {
        .fixture = fixture_new(two ? two_sources_csv : fixture_stock_csv, selections[data[0] % 4]),
    };
    page_must(exp_counts_new(&s.fixture->exp) == 0);
    exp_counts_set_windows(s.fixture->exp, 300 * NS_PER_S, 300 * NS_PER_S);
    s.sources[DEVICE_SOURCE_NVML].inventory = &s.fixture->inventory;
    s.sources[DEVICE_SOURCE_DCGM].inventory = &s.fixture->dcgm;
    s.fixture->dcgm.ends_at_once = true;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        frame_reader_init(&s.sources[i].reader);
    if (two) {
        fixture_use_dcgm(s.fixture);
        play_two(&s, data + 2, size - 2);
    } else {
        play_one(&s, (size_t)data[1] * 16 + 1, data + 2, size - 2);
    }
    s.pages = 0;
    show(&s);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        frame_reader_deinit(&s.sources[i].reader);
    fixture_free(s.fixture);
    return 0;
}
