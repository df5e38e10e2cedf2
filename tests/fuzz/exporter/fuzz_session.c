// SPDX-License-Identifier: Apache-2.0
// What a source process says, any bytes: through the frame reader into the inventory and onto
// pages. Byte 0 chooses the devices, byte 1 the size of the pieces the stream comes in. Whatever
// the frames hold, what comes out is a page.
#include "page_check.h"
#include "render_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGES_MAX 6 // a page takes longer than what led to it

struct session {
    struct fixture *fixture;
    struct frame_reader reader;
    unsigned pages;
};

static void show(struct session *s)
{
    if (s->pages++ >= PAGES_MAX)
        return;
    for (int format = 0; format < TEXT_FORMAT_COUNT; format++)
        page_check(fixture_page(s->fixture, (enum text_format)format), (enum text_format)format);
}

// Frames name the watch and the time of whoever recorded them: here they are of now.
static void apply(struct session *s, struct frame *frame)
{
    struct frame_sample head;
    if (frame->type == FRAME_SAMPLE) {
        head = *frame->as.sample.head;
        head.watch_id = s->fixture->inventory.watch_id;
        frame->as.sample.head = &head;
        s->fixture->now_ns = head.ended_ns;
    }
    page_must(inventory_apply(&s->fixture->inventory, frame) == 0);
    inventory_expire(&s->fixture->inventory, s->fixture->config.period_ns, s->fixture->now_ns);
    if (frame->type == FRAME_SAMPLE || frame->type == FRAME_EVENTS)
        show(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const selections[] = {"f", "g", "i", "g+i"};
    if (size < 2)
        return 0;
    struct session s = {.fixture = fixture_new(fixture_stock_csv, selections[data[0] % 4])};
    frame_reader_init(&s.reader);
    int rc = 0;
    for (size_t at = 2; rc == 0 && at < size;) {
        char *space;
        size_t room, piece = (size_t)data[1] * 16 + 1;
        page_must(frame_reader_space(&s.reader, &space, &room) == 0);
        piece = piece < room ? piece : room;
        piece = piece < size - at ? piece : size - at;
        memcpy(space, data + at, piece);
        frame_reader_commit(&s.reader, piece);
        at += piece;
        struct frame frame;
        const char *what;
        while ((rc = frame_reader_next(&s.reader, &frame, &what)) == 1)
            apply(&s, &frame);
    }
    show(&s);
    frame_reader_deinit(&s.reader);
    fixture_free(s.fixture);
    return 0;
}
