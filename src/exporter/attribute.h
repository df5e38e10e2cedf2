// SPDX-License-Identifier: Apache-2.0
// Attribution: from the kubelet's rows to the holders of each device. An engine: no I/O, no clock,
// no log. Rules: which resource counts, which keys a device id yields, whose samples they match
// (dcgm-exporter's mapping, as docs/compat.md tells, with its mistakes mended).
#pragma once

#include "base/arena.h"
#include "base/sv.h"
#include "kube/pod_resources.h"

struct dra;

// A device that can be held, as attribution sees it. Strings borrowed for the call.
struct attribute_device {
    bool is_instance; // MIG GPU instance
    uint32_t index;   // NVML index of the GPU (of the parent)
    uint32_t gpu_instance_id;
    struct sv uuid;        // "GPU-..." or "MIG-..."
    struct sv legacy_uuid; // "MIG-GPU-<uuid>/gi/ci" or empty
    struct sv parent_uuid; // instance: the GPU's
    // N of /dev/nvidiaN of the GPU (of the parent), by which GKE's device plugin names it; the
    // driver may number it unlike NVML. Not known: index stands for it.
    bool minor_known;
    uint32_t minor;
    uint32_t profile_id, placement; // instance; UINT32_MAX: not known
};

struct attribute_holder {
    size_t row; // in pod_devices->rows
    // Replica text of the id, borrowed from the rows; .ptr NULL: none. An id without one takes that
    // of the container's id before it, as dcgm-exporter's shared mode has it.
    struct sv vgpu;
    // Of a MIG device of a claim: its profile and the instance's UUID as the ResourceSlice has it,
    // else NVML's; "" unknown. Else NULL. Live in the result.
    const char *mig_profile, *mig_uuid;
    bool guessed; // a claim's device that is known by its name alone
};

// A claim has a MIG instance, and which one cannot be known: of this GPU, of this profile. Nobody
// is made the holder of an instance by a guess, so no device's holders have this row.
struct attribute_part {
    size_t row;
    size_t device; // the GPU
    const char *mig_profile, *mig_uuid;
};

// A whole id, not a replica, is given to one container at a time. Where two pods are listed with
// one, the older listing is left over from a pod that ended (a kubelet before 1.34 may list such
// pods), so the newer pod alone holds it. Of pods that were first seen together nobody knows which
// it is: they all hold it. A claim may be used by many containers and pods, and a monitor's claim
// may have a device that somebody else's has as well: all that are listed with a claim's device
// hold it.

// Holders per device, in row order: one for each id held, so a container with two replicas stands
// there twice. Rows of the poller stand in the order in which their pods were first seen, so the
// last holder is the newest one; that is what "last wins" means where a single owner is wanted of a
// device that has several.
struct attribute_result {
    size_t device_count;
    struct attribute_device_holders {
        size_t first, count; // range in holders
        size_t containers;   // different ones among the holders: 1 is a sole owner, more is sharing
        size_t pods;
    } * devices;
    struct attribute_holder *holders;
    size_t holder_count;
    struct attribute_part *parts; // in row order
    size_t part_count;
    size_t guessed;       // devices of claims that are known by their names alone, parts too
    size_t unknown_ids;   // rows of a GPU resource whose id matches no device
    size_t superseded;    // rows whose id went on to a newer pod
    bool shared_seen;     // some device has holders of more than one container
    struct arena strings; // private
};
void attribute_result_deinit(struct attribute_result *r);

struct attribute_options {
    bool by_device_name;             // identity is nvidiaN instead of the UUID
    const struct sv *resource_names; // extra exact names
    size_t resource_name_count;
    struct dra *dra; // resolves devices of claims; NULL: they are nobody's
    // Rows of our own pod are left out (its claim with admin access has every GPU and takes none);
    // empty: not known.
    struct sv own_namespace, own_pod;
};

// nvidia.com/gpu, prefix nvidia.com/mig-, or an extra name.
bool attribute_resource_is_gpu(const struct attribute_options *o, struct sv resource);
// "…/vgpuN" or "…::N": the replica text (may be empty); .ptr NULL when the id has none.
struct sv attribute_replica(struct sv device_id);
// The id without "::replica" / "/vgpuN".
struct sv attribute_strip_replica(struct sv device_id);

// Whether a row can matter: a GPU resource, or an id written like an NVIDIA UUID (GPU-, MIG- and
// MIG-GPU- forms, with or without a replica), or the device of a claim of NVIDIA's driver (then
// resource is the driver). For the poller's filter, which knows no devices.
bool attribute_row_is_wanted(const struct attribute_options *o, struct sv resource,
                             struct sv device_id);

// A row counts when its resource is a GPU resource, or its id names a device of ours (exactly, or
// the hex part without regard to case) whatever the resource is called. UUIDs and the names
// nvidiaN, nvidiaN/giM are both understood whatever by_device_name says; with it a bare number
// means nvidiaN too.
// A row of a claim is turned into a device by dra_find: a GPU by its UUID, else minor number; an
// instance by its UUID, else by its GPU (UUID or minor number), profile id and placement; else it
// is a part of that GPU. 0, -ENOMEM. The result borrows from rows.
int must_use attribute(const struct attribute_options *o, const struct attribute_device *devices,
                       size_t device_count, const struct pod_devices *rows,
                       struct attribute_result *out);
