// SPDX-License-Identifier: Apache-2.0
// Dynamic resource allocation: from (driver, pool, device name) to a GPU or MIG instance of this
// node. An engine. ResourceSlices (read at the API server with --kubernetes-enable-dra) come first:
// attributes uuid, parentUUID, profile of NVIDIA's driver gpu.nvidia.com. Without them the names of
// that driver say it: gpu-MINOR, and gpu-MINOR-mig-PROFILE-PROFILEID-PLACEMENT.
// Wire: k8s.io/api/resource v1, v1beta2, v1beta1 (there under .basic).
#pragma once

#include "codec/json.h"
#include "exporter/attribute.h"

#define DRA_DRIVER "gpu.nvidia.com"

struct dra;
int must_use dra_new(struct dra **out);
void dra_free(struct dra *d);
// A ResourceSlice that is new or changed; key: its name. Of a pool the highest generation counts;
// until that is complete (resourceSliceCount) the one before is in force. 0; -EBADMSG (left out,
// counted); -ENOMEM.
int must_use dra_put(struct dra *d, struct sv key, const struct json_node *slice);
void dra_delete(struct dra *d, struct sv key);
uint64_t
dra_version(const struct dra *d); // another number when the answer to a question may differ

struct dra_device {
    enum dra_kind {
        DRA_GPU,
        DRA_MIG,
    } kind;
    const char *uuid;        // "" not known (dynamic MIG)
    const char *parent_uuid; // MIG: "" not known
    const char *profile;     // MIG: "1g.12gb"
    bool guessed;            // by its name alone
    // By name: minor number of the GPU, UINT32_MAX: not of that form; MIG: profile id and placement
    uint32_t minor, profile_id, placement;
};
// False: no device of NVIDIA's driver. Strings are borrowed until the next put or delete (by name:
// they lie in scratch of d, until the next find).
bool dra_find(struct dra *d, struct sv driver, struct sv pool, struct sv device,
              struct dra_device *out);
struct dra_stats {
    size_t slices, devices;
    uint64_t skipped;
};
void dra_get_stats(const struct dra *d, struct dra_stats *out);
