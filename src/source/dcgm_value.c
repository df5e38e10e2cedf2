// SPDX-License-Identifier: Apache-2.0
#include "source/dcgm_value.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

// What the four blanks say, in DCGM's order: none, not found, not supported, no permission.
static const enum frame_status blank_status[] = {FRAME_NO_DATA, FRAME_NO_DATA, FRAME_NOT_SUPPORTED,
                                                 FRAME_NO_PERMISSION};

enum frame_status dcgm_status_of(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_OK:
        return FRAME_OK;
    case DCGM_ST_NO_DATA:
    case DCGM_ST_STALE_DATA:
    case DCGM_ST_NOT_WATCHED:
    case DCGM_ST_PENDING:
    case DCGM_ST_GPUS_DETACHED: // on purpose, for a new driver
        return FRAME_NO_DATA;
    case DCGM_ST_NOT_SUPPORTED:
    case DCGM_ST_UNKNOWN_FIELD:
    case DCGM_ST_FIELD_UNSUPPORTED_BY_API:
    case DCGM_ST_GPU_NOT_SUPPORTED:
    case DCGM_ST_PROFILING_NOT_SUPPORTED:
        return FRAME_NOT_SUPPORTED;
    case DCGM_ST_FUNCTION_NOT_FOUND:
        return FRAME_NO_SYMBOL;
    case DCGM_ST_NO_PERMISSION:
    case DCGM_ST_REQUIRES_ROOT:
        return FRAME_NO_PERMISSION;
    case DCGM_ST_GPU_IS_LOST:
        return FRAME_LOST;
    case DCGM_ST_CONNECTION_NOT_VALID:
        return FRAME_NOT_CONNECTED;
    case DCGM_ST_IN_USE:
        return FRAME_IN_USE;
    case DCGM_ST_PAUSED:
        return FRAME_PAUSED;
    default:
        return FRAME_VENDOR_ERROR;
    }
}

enum field_type dcgm_type_of(int letter, enum field_type otherwise)
{
    switch (letter) {
    case DCGM_FT_INT64:
    case DCGM_FT_TIMESTAMP:
        return FIELD_I64;
    case DCGM_FT_DOUBLE:
        return FIELD_DOUBLE;
    case DCGM_FT_STRING:
        return FIELD_STRING;
    case DCGM_FT_BINARY:
        return FIELD_BINARY;
    default:
        return otherwise;
    }
}

// The status of the blank that v is, counted from base; FRAME_OK: it is none.
static enum frame_status blank_of(int64_t v, int64_t base)
{
    if (v < base || v > base + (int64_t)ARRAY_SIZE(blank_status) - 1)
        return FRAME_OK;
    return blank_status[v - base];
}

// Old fields blank with 32 bits, whatever their type says. No count gets near the 64-bit blanks, so
// that the rest above them is no number either.
static void read_i64(int64_t v, struct dcgm_reading *out)
{
    out->status = blank_of(v, DCGM_INT32_BLANK);
    if (out->status == FRAME_OK)
        out->status = blank_of(v, DCGM_INT64_BLANK);
    if (out->status == FRAME_OK && v > DCGM_INT64_BLANK)
        out->status = FRAME_NO_DATA;
    if (out->status != FRAME_OK)
        return;
    out->type = FRAME_VALUE_I64;
    out->i64 = v;
}

// Only the four numbers are blanks: a count of bytes or cycles may pass 2^47.
static void read_double(double v, struct dcgm_reading *out)
{
    double blank = v - DCGM_FP64_BLANK;
    if (!isfinite(v)) {
        out->status = FRAME_NO_DATA;
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(blank_status); i++) {
        if (blank == (double)i) {
            out->status = blank_status[i];
            return;
        }
    }
    out->type = FRAME_VALUE_DOUBLE;
    out->f64 = v;
}

static void read_string(const char *v, struct dcgm_reading *out)
{
    static const struct {
        struct sv text;
        enum frame_status status;
    } blanks[] = {
        {SV(DCGM_STR_BLANK), FRAME_NO_DATA},
        {SV(DCGM_STR_NOT_FOUND), FRAME_NO_DATA},
        {SV(DCGM_STR_NOT_SUPPORTED), FRAME_NOT_SUPPORTED},
        {SV(DCGM_STR_NOT_PERMISSIONED), FRAME_NO_PERMISSION},
        {SV("<<<NOT_PERMISSIONED>>>"), FRAME_NO_PERMISSION}, // as dcgm-exporter knows it
    };
    struct sv text = {v, strnlen(v, DCGM_MAX_STR_LENGTH)};
    for (size_t i = 0; i < ARRAY_SIZE(blanks); i++) {
        if (sv_equals(text, blanks[i].text)) {
            out->status = blanks[i].status;
            return;
        }
    }
    out->type = FRAME_VALUE_STRING;
    out->text = text;
}

void dcgm_value_read(const dcgmFieldValue_v1 *value, enum field_type type, struct dcgm_reading *out)
{
    *out = (struct dcgm_reading){.status = dcgm_status_of(value->status)};
    if (out->status != FRAME_OK) {
        out->i64 = value->status;
        return;
    }
    enum field_type as = dcgm_type_of(value->fieldType, type);
    switch (type == FIELD_BINARY ? type : as) {
    case FIELD_I64:
        read_i64(value->value.i64, out);
        break;
    case FIELD_DOUBLE:
        read_double(value->value.dbl, out);
        break;
    case FIELD_STRING:
        read_string(value->value.str, out);
        break;
    case FIELD_BINARY:
        out->status = FRAME_NOT_SUPPORTED;
        break;
    }
    if (out->status == FRAME_OK && value->ts <= 0)
        *out = (struct dcgm_reading){.status = FRAME_NO_DATA};
}

uint64_t dcgm_value_taken_ns(int64_t stamp_us, const struct dcgm_moment *now, uint64_t since_ns)
{
    uint64_t stamp = stamp_us > 0 ? (uint64_t)stamp_us : 0;
    uint64_t wall_us = now->wall_ns / NS_PER_US;
    uint64_t age_us = wall_us > stamp ? wall_us - stamp : 0;
    uint64_t mono_us = now->mono_ns / NS_PER_US;
    uint64_t taken_ns = age_us < mono_us ? now->mono_ns - age_us * NS_PER_US : 0;
    return taken_ns > since_ns ? taken_ns : since_ns < now->mono_ns ? since_ns : now->mono_ns;
}
