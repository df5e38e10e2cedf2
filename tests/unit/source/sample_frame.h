// SPDX-License-Identifier: Apache-2.0
// A SAMPLE frame as the exporter would read it. Include after cmocka.h.
#pragma once

#include <string.h>

#include "gpu/frame.h"

// *out borrows the reader, which begins anew behind an ENTITIES frame of that list.
static inline void read_sample_frame(const struct buf *b, uint32_t generation,
                                     uint32_t entity_count, struct frame_reader *reader,
                                     struct frame *out)
{
    const char *what = "";
    frame_reader_deinit(reader);
    frame_reader_init(reader);
    reader->generation = generation;
    reader->entity_count = entity_count;
    for (size_t at = 0; at < b->len;) {
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(reader, &space, &room), 0);
        size_t n = b->len - at < room ? b->len - at : room;
        memcpy(space, b->data + at, n);
        frame_reader_commit(reader, n);
        at += n;
    }
    if (frame_reader_next(reader, out, &what) != 1)
        fail_msg("%s", what);
    assert_int_equal(out->type, FRAME_SAMPLE);
}
