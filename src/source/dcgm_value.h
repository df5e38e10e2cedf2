// SPDX-License-Identifier: Apache-2.0
// Whether a DCGM value is one. Pure functions.
#pragma once

#include "gpu/catalogue.h"
#include "gpu/frame.h"
#include "source/dcgm_abi.h"

struct dcgm_reading {
    enum frame_status status;
    enum frame_value_type type;
    int64_t i64; // FRAME_VENDOR_ERROR: the dcgmReturn_t
    double f64;
    struct sv text; // borrowed from the value
};

// Status first, then the blank of the field's own type (the record's type lies where the status is
// not OK), then sense: NaN, a time stamp of 0. Binary fields are FRAME_NOT_SUPPORTED.
void dcgm_value_read(const dcgmFieldValue_v1 *value, enum field_type type,
                     struct dcgm_reading *out);
enum frame_status dcgm_status_of(dcgmReturn_t result);
