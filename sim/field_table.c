// SPDX-License-Identifier: Apache-2.0
#include "node.h"

const struct sim_field_info sim_field_table[SIM_FIELD_COUNT] = {
#define SIM_FIELD(id, name, kind) {name, kind},
#include "fields.def"
#undef SIM_FIELD
};
