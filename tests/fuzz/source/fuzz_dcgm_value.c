// SPDX-License-Identifier: Apache-2.0
// A field type, the moments (8 bytes each: mono, wall, since), then a value record, cut anywhere.
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "source/dcgm_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const dcgmFieldValue_v1 *value, const struct dcgm_reading *r)
{
    assert((r->status == FRAME_OK) == (r->type != FRAME_VALUE_NONE));
    assert(r->status < FRAME_STATUS_END && r->type < FRAME_VALUE_TYPE_END);
    if (r->status != FRAME_OK)
        return;
    assert(value->status == DCGM_ST_OK && value->ts > 0);
    switch (r->type) {
    case FRAME_VALUE_I64:
        assert(r->i64 < DCGM_INT64_BLANK);
        assert(r->i64 < DCGM_INT32_BLANK || r->i64 > DCGM_INT32_BLANK + 3);
        break;
    case FRAME_VALUE_DOUBLE:
        assert(isfinite(r->f64) && r->f64 != DCGM_FP64_BLANK);
        break;
    case FRAME_VALUE_STRING:
        assert(r->text.ptr == value->value.str && r->text.len <= DCGM_MAX_STR_LENGTH);
        break;
    case FRAME_VALUE_NONE:
    case FRAME_VALUE_TYPE_END:
        assert(false);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dcgmFieldValue_v1 value;
    struct dcgm_moment now = {0};
    uint64_t since = 0;
    struct dcgm_reading r;
    if (size < 25)
        return 0;
    enum field_type type = (enum field_type)(data[0] % 4);
    memcpy(&now.mono_ns, data + 1, 8);
    memcpy(&now.wall_ns, data + 9, 8);
    memcpy(&since, data + 17, 8);
    size -= 25;
    memset(&value, 0, sizeof(value));
    memcpy(&value, data + 25, size < sizeof(value) ? size : sizeof(value));
    dcgm_value_read(&value, type, &r);
    check(&value, &r);
    uint64_t taken = dcgm_value_taken_ns(value.ts, &now, since);
    assert(taken <= now.mono_ns && (taken >= since || since >= now.mono_ns));
    return 0;
}
