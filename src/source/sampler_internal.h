// SPDX-License-Identifier: Apache-2.0
// Between the sampler's files: sampler.c decides what is read next, sampler_read.c reads it.
#pragma once

#include "source/sampler.h"

void sampler_add_record(struct sampler *s, uint32_t entity, uint16_t field,
                        const struct nvml_output *out, uint64_t taken_ns);
void sampler_put_status(struct sampler *s, uint32_t entity, uint32_t row, enum frame_status status);

// Each reads a part of a class of an entity. False: the GPU is gone, ask it no more.
// The next call that is wanted at or behind *row, which moves on; at the class's end there is none.
bool sampler_read_next_call(struct sampler *s, uint32_t entity, const struct sampler_class *c,
                            uint32_t *row);
bool sampler_read_values(struct sampler *s, uint32_t entity, const struct sampler_class *c);
bool sampler_read_gpm(struct sampler *s, uint32_t entity, const struct sampler_class *c);
void sampler_read_xid(struct sampler *s, uint32_t entity, const struct sampler_class *c);
