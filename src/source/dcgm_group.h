// SPDX-License-Identifier: Apache-2.0
// Groups of entities and of fields in an engine, each under a name of its own. Of an engine that is
// lost nothing is destroyed: they went with it.
#pragma once

#include "source/dcgm_library.h"

// An empty group; 0 with *out.
dcgmReturn_t dcgm_group_create(struct dcgm *d, dcgmGpuGrp_t *out);
void dcgm_group_destroy(struct dcgm *d, dcgmGpuGrp_t group);
dcgmReturn_t dcgm_field_group_create(struct dcgm *d, const uint16_t *ids, uint32_t count,
                                     dcgmFieldGrp_t *out);
void dcgm_field_group_destroy(struct dcgm *d, dcgmFieldGrp_t fields);
