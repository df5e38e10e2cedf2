// SPDX-License-Identifier: Apache-2.0
// From a line of /proc/PID/cgroup to pod UID and container id. A parser: no I/O. It knows the paths
// of the cgroupfs and systemd drivers, containerd, CRI-O, docker, kubelets in containers, cgroup v1
// and v2, and paths as they look from inside another cgroup namespace (`/../../...`).
#pragma once

#include <stdbool.h>

#include "base/sv.h"

#define POD_UID_BYTES 37      // "8-4-4-4-12" lower case, or the 32 digits of a static pod; NUL
#define CONTAINER_ID_BYTES 65 // 64 hex digits, NUL

struct process_cgroup {
    char pod_uid[POD_UID_BYTES];           // "" none found; lower case, "-" between its parts
    char container_id[CONTAINER_ID_BYTES]; // "" none (a process of the pod's own level)
    // A path that only climbs to a sibling's: of the reader's own pod, whose UID can't be seen
    // from inside its cgroup namespace.
    bool own_pod;
};
// The whole file: the first line that yields a UID counts, memory's before cpu's before others.
// With several pods in a path (a cluster inside a pod) the outermost is the one of this host.
// False: no Kubernetes process, and *out is empty.
bool process_cgroup_parse(struct sv file, struct process_cgroup *out);
