// SPDX-License-Identifier: Apache-2.0
// From a reading to a DCGM value: DCGM's own arithmetic, its truncations included. Engine.
#include "source/nvml_fields.h"

#include <math.h>
#include <string.h>

#include "source/nvml_call.h"

#define MOST_CELSIUS 200 // DCGM takes more for garbage
#define MIB (1024.0 * 1024.0)

const struct nvml_recipe *nvml_recipe_find(uint16_t field)
{
    uint32_t low = 0, high = nvml_recipe_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (nvml_recipe_table[middle].field < field)
            low = middle + 1;
        else
            high = middle;
    }
    return low < nvml_recipe_count && nvml_recipe_table[low].field == field
               ? &nvml_recipe_table[low]
               : NULL;
}

enum frame_status nvml_status_of(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return FRAME_OK;
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_INVALID_ARGUMENT: // an id or link this driver or board does not have
    case NVML_ERROR_VGPU_ECC_NOT_SUPPORTED:
        return FRAME_NOT_SUPPORTED;
    case NVML_ERROR_FUNCTION_NOT_FOUND:
    case NVML_ERROR_DEPRECATED:
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return FRAME_NO_SYMBOL;
    case NVML_ERROR_AVOIDED:
        return FRAME_AVOIDED;
    case NVML_ERROR_NO_PERMISSION:
        return FRAME_NO_PERMISSION;
    case NVML_ERROR_NOT_FOUND:
    case NVML_ERROR_NO_DATA:
    case NVML_ERROR_NOT_READY:
        return FRAME_NO_DATA;
    case NVML_ERROR_GPU_IS_LOST:
    case NVML_ERROR_GPU_NOT_FOUND:
        return FRAME_LOST;
    default:
        return FRAME_VENDOR_ERROR;
    }
}

bool nvml_status_is_final(enum frame_status status)
{
    return status == FRAME_NOT_SUPPORTED || status == FRAME_NO_SYMBOL ||
           status == FRAME_NO_PERMISSION || status == FRAME_NEEDS_DCGM || status == FRAME_NEEDS_GPM;
}

double nvml_unpack_ber(uint64_t packed)
{
    unsigned exponent = packed & 0xff, mantissa = packed >> 8 & 0xf;
    if (mantissa == 15 && exponent == 255)
        return 0.0; // no error seen
    double scale = 1.0;
    for (unsigned i = 0; i < exponent; i++)
        scale *= 10.0;
    return (double)mantissa / scale;
}

static void give_i64(struct nvml_output *out, int64_t value)
{
    out->type = FRAME_VALUE_I64;
    out->i64 = value;
}

// A double that says nothing is not sent: the exporter would have to refuse it.
static void give_double(struct nvml_output *out, double value)
{
    if (!isfinite(value)) {
        out->status = FRAME_INVALID;
        return;
    }
    out->type = FRAME_VALUE_DOUBLE;
    out->f64 = value;
}

static void give_truncated(struct nvml_output *out, double value)
{
    if (!isfinite(value) || value >= 9.2e18 || value <= -9.2e18)
        out->status = FRAME_INVALID;
    else
        give_i64(out, (int64_t)value);
}

static void give_text(struct nvml_output *out, const char *text, size_t bytes)
{
    size_t len = strnlen(text, bytes);
    if (!len) {
        out->status = FRAME_NO_DATA;
        return;
    }
    out->type = FRAME_VALUE_STRING;
    out->text = (struct sv){text, len};
}

static void give_number(enum nvml_convert convert, uint64_t number, struct nvml_output *out)
{
    switch (convert) {
    case CONVERT_I64:
        give_i64(out, (int64_t)number);
        break;
    case CONVERT_MIB:
        give_i64(out, (int64_t)(number / (1024 * 1024)));
        break;
    case CONVERT_WATTS:
        give_double(out, (double)number / 1000.0);
        break;
    case CONVERT_WHOLE_WATTS:
        give_double(out, (double)(number / 1000));
        break;
    case CONVERT_CELSIUS:
        if (number > MOST_CELSIUS)
            out->status = FRAME_INVALID;
        else
            give_i64(out, (int64_t)number);
        break;
    case CONVERT_HERTZ:
        give_i64(out, (int64_t)(number * 1000000));
        break;
    case CONVERT_JOULES:
        give_double(out, (double)number / 1000.0);
        break;
    case CONVERT_PERCENT_TO_RATIO:
        give_double(out, (double)number / 100.0);
        break;
    case CONVERT_BER:
        give_double(out, nvml_unpack_ber(number));
        break;
    case CONVERT_REAL:
    case CONVERT_TEXT:
    case CONVERT_GPM_RATIO:
    case CONVERT_GPM_BYTES:
    case CONVERT_GPM_COUNT:
        break;
    }
}

void nvml_convert(const struct nvml_recipe *recipe, const struct nvml_reading *reading,
                  struct nvml_output *out)
{
    *out = (struct nvml_output){.status = nvml_status_of(reading->result)};
    if (out->status == FRAME_OK && recipe->convert != CONVERT_TEXT &&
        recipe->pick < NVML_READING_NUMBERS)
        out->status = reading->status[recipe->pick];
    if (out->status != FRAME_OK) {
        out->i64 = out->status == FRAME_VENDOR_ERROR ? reading->result : 0;
        return;
    }
    switch ((enum nvml_convert)recipe->convert) {
    case CONVERT_REAL:
        give_double(out, reading->real);
        break;
    case CONVERT_TEXT:
        give_text(out, reading->text[recipe->pick & 1], sizeof(reading->text[0]));
        break;
    case CONVERT_GPM_RATIO:
        give_double(out, reading->real / 100.0);
        break;
    case CONVERT_GPM_BYTES:
        give_truncated(out, reading->real * MIB);
        break;
    case CONVERT_GPM_COUNT:
        give_truncated(out, reading->real);
        break;
    case CONVERT_I64:
    case CONVERT_MIB:
    case CONVERT_WATTS:
    case CONVERT_WHOLE_WATTS:
    case CONVERT_CELSIUS:
    case CONVERT_HERTZ:
    case CONVERT_JOULES:
    case CONVERT_PERCENT_TO_RATIO:
    case CONVERT_BER:
        give_number((enum nvml_convert)recipe->convert, reading->number[recipe->pick], out);
        break;
    }
}
