// SPDX-License-Identifier: Apache-2.0
// How device plugins write device ids: the forms taken apart, for attribution only.
//   GPU-<uuid>  MIG-<uuid>  MIG-GPU-<uuid>/<gi>/<ci>   NVIDIA's plugin, each perhaps with
//   ::<replica> nvidia<N>  nvidia<N>/gi<M>                         GKE's plugin, each perhaps with
//   /vgpu<replica>
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

#define ATTRIBUTE_KEY_BYTES 160 // longer ids are nobody's: a legacy MIG id has 56 bytes

// A lookup key: a letter for the name space and the normalised text.
struct attribute_key {
    size_t len;
    char text[ATTRIBUTE_KEY_BYTES];
};

static inline struct sv attribute_key_sv(const struct attribute_key *k)
{
    return (struct sv){k->text, k->len};
}

// All return false when the text is too long, and the parsing ones when it is not of their form.
// A UUID: its prefix (GPU-, MIG-, MIG-GPU-) as it is, the rest in lower case.
bool must_use attribute_key_uuid(struct sv uuid, struct attribute_key *out);
// An instance by its parent's UUID and its GPU instance id; from the legacy text
// "MIG-GPU-<uuid>/<gi>/<ci>" below.
bool must_use attribute_key_parent_instance(struct sv parent_uuid, uint32_t gpu_instance_id,
                                            struct attribute_key *out);
bool must_use attribute_key_legacy(struct sv id, struct attribute_key *out);
// A GPU, or an instance of it, by the number of its device file.
void attribute_key_minor(uint32_t minor, struct attribute_key *out);
void attribute_key_minor_instance(uint32_t minor, uint32_t gpu_instance_id,
                                  struct attribute_key *out);
// An instance by its GPU (UUID or minor number) and where on it it lies.
bool must_use attribute_key_parent_place(struct sv parent_uuid, uint32_t profile_id,
                                         uint32_t placement, struct attribute_key *out);
void attribute_key_minor_place(uint32_t minor, uint32_t profile_id, uint32_t placement,
                               struct attribute_key *out);
// "nvidia<N>" or "nvidia<N>/gi<M>"; with bare_number also "<N>".
bool must_use attribute_key_device_name(struct sv id, bool bare_number, struct attribute_key *out);
