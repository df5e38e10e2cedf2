// SPDX-License-Identifier: Apache-2.0
// Whether a DCGM value is one, and when it was taken. Pure functions. Blanks and record shapes:
// DCGM's public header dcgm_structs.h.
#pragma once

#include "gpu/catalogue.h"
#include "gpu/frame.h"
#include "source/dcgm_abi.h"

struct dcgm_reading {
    enum frame_status status;
    enum frame_value_type type; // FRAME_VALUE_NONE unless status is FRAME_OK
    int64_t i64;                // FRAME_VENDOR_ERROR: the dcgmReturn_t
    double f64;
    struct sv text; // borrowed from the value
};

// Status first, then the blank of the value's type, then sense: NaN, a time stamp of 0. type is the
// field's own; the record's counts where it names one, since it says which number was filled in
// (where the status is not OK it lies: DCGM up to 4.4.1 then says integer, 0). Binary fields are
// FRAME_NOT_SUPPORTED.
void dcgm_value_read(const dcgmFieldValue_v1 *value, enum field_type type,
                     struct dcgm_reading *out);
enum frame_status dcgm_status_of(dcgmReturn_t result);
// Of dcgm_field_meta_t.fieldType or a record's; otherwise where it is none of DCGM's.
enum field_type dcgm_type_of(int letter, enum field_type otherwise);

// One moment on both clocks.
struct dcgm_moment {
    uint64_t mono_ns, wall_ns;
};
// When a value with this time stamp (microseconds since 1970 on the engine's clock) was taken, on
// CLOCK_MONOTONIC. The engine's clock may be another machine's and either may have been set: what
// is known for sure is that a stamp seen for the first time now was not there at since_ns (0: never
// looked before).
uint64_t dcgm_value_taken_ns(int64_t stamp_us, const struct dcgm_moment *now, uint64_t since_ns);
