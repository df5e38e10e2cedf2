// SPDX-License-Identifier: Apache-2.0
// What tests of the frame reader share: a reader on a wire, frames and entities to put on it.
#pragma once

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/catalogue.h"
#include "gpu/frame.h"

// A reader and the bytes still to be fed to it.
struct fixture {
    struct frame_reader reader;
    struct buf wire;
    const char *what;
};

static inline struct fixture *fresh(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    frame_reader_init(&f->reader);
    f->wire = BUF_INIT(64u << 20);
    return f;
}

static inline void done(struct fixture *f)
{
    frame_reader_deinit(&f->reader);
    buf_deinit(&f->wire);
    free(f);
}

static inline int setup(void **state)
{
    *state = fresh();
    return 0;
}

static inline int teardown(void **state)
{
    done(*state);
    return 0;
}

static inline void put(struct fixture *f, enum frame_type type, const void *payload, size_t bytes)
{
    size_t start = frame_begin(&f->wire, type);
    buf_add(&f->wire, payload, bytes);
    frame_end(&f->wire, start);
    assert_int_equal(f->wire.error, 0);
}

// Feeds up to `most` bytes of the wire.
static inline void feed(struct fixture *f, size_t most)
{
    char *space;
    size_t room;
    assert_int_equal(frame_reader_space(&f->reader, &space, &room), 0);
    assert_true(room >= 4096);
    size_t n = f->wire.len < room ? f->wire.len : room;
    n = n < most ? n : most;
    memcpy(space, f->wire.data, n);
    frame_reader_commit(&f->reader, n);
    buf_consume(&f->wire, n);
}

// Feeds as much as is needed for the next frame, and returns frame_reader_next's answer.
static inline int next(struct fixture *f, struct frame *out)
{
    for (;;) {
        int rc = frame_reader_next(&f->reader, out, &f->what);
        if (rc != 0 || !f->wire.len)
            return rc;
        feed(f, SIZE_MAX);
    }
}

static inline struct frame_entity gpu(uint32_t index, uint32_t self)
{
    return (struct frame_entity){
        .kind = FRAME_ENTITY_GPU,
        .index = index,
        .parent = self,
        .minor = index,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = UINT32_MAX,
        .uuid = "GPU-0",
        .name = "NVIDIA A10G",
    };
}

static inline struct frame_entity instance(uint32_t index, uint32_t parent, uint32_t gi)
{
    return (struct frame_entity){
        .kind = FRAME_ENTITY_GPU_I,
        .index = index,
        .parent = parent,
        .gpu_instance_id = gi,
        .instance_entity_id = index * 8 + gi,
        .id = UINT32_MAX,
        .slices = 1,
        .total_slices = 7,
        .uuid = "MIG-0",
        .profile = "1g.10gb",
    };
}

// A switch or CPU (its own parent), or what hangs on one.
static inline struct frame_entity part(enum frame_entity_kind kind, uint32_t parent, uint32_t id)
{
    return (struct frame_entity){
        .kind = (uint8_t)kind,
        .index = UINT32_MAX,
        .parent = parent,
        .minor = UINT32_MAX,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = id,
    };
}

static inline struct frame_entity gpu_link(uint32_t index, uint32_t parent, uint32_t id)
{
    struct frame_entity e = part(FRAME_ENTITY_LINK, parent, id);
    e.index = index;
    return e;
}

static inline struct frame_entity compute_instance(uint32_t index, uint32_t parent, uint32_t gi,
                                                   uint32_t id)
{
    struct frame_entity e = part(FRAME_ENTITY_GPU_CI, parent, id);
    e.index = index;
    e.gpu_instance_id = gi;
    return e;
}

static inline void put_entities(struct fixture *f, uint32_t generation,
                                const struct frame_entity *list, uint32_t count)
{
    struct frame_entities head = {.generation = generation, .count = count};
    size_t start = frame_begin(&f->wire, FRAME_ENTITIES);
    buf_add(&f->wire, &head, sizeof(head));
    buf_add(&f->wire, list, count * sizeof(*list));
    frame_end(&f->wire, start);
}

static inline void put_sample(struct fixture *f, uint32_t generation,
                              const struct frame_record *list, uint32_t count, const char *strings,
                              uint32_t string_bytes)
{
    struct frame_sample head = {
        .generation = generation,
        .watch_id = 7,
        .classes = 1u << FIELD_CLASS_FAST,
        .count = count,
        .string_bytes = string_bytes,
        .vendor_calls = 3,
        .started_ns = 100,
        .ended_ns = 200,
    };
    size_t start = frame_begin(&f->wire, FRAME_SAMPLE);
    buf_add(&f->wire, &head, sizeof(head));
    buf_add(&f->wire, list, count * sizeof(*list));
    buf_add(&f->wire, strings, string_bytes);
    frame_end(&f->wire, start);
}

// One GPU, generation 1, read.
static inline void one_gpu(struct fixture *f)
{
    struct frame_entity e = gpu(0, 0);
    struct frame out;
    put_entities(f, 1, &e, 1);
    assert_int_equal(next(f, &out), 1);
}

static inline struct frame_record string_record(uint32_t offset, uint32_t len)
{
    return (struct frame_record){
        .field = 1,
        .type = FRAME_VALUE_STRING,
        .value.i64 = (int64_t)((uint64_t)offset << 32 | len),
    };
}

#define assert_refused(f, text)                                                                    \
    do {                                                                                           \
        struct frame refused_;                                                                     \
        assert_int_equal(next((f), &refused_), -EPROTO);                                           \
        assert_string_equal((f)->what, (text));                                                    \
        assert_int_equal(frame_reader_next(&(f)->reader, &refused_, &(f)->what), -EPROTO);         \
    } while (0)

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
