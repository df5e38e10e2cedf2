// SPDX-License-Identifier: Apache-2.0
// From a pid to its pod: /proc/PID/cgroup and stat, kept by (pid, start time). Reads procfs, which
// never waits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "kube/process_cgroup.h"

enum process_kind {
    PROCESS_GONE,       // there is no such process any more, and it was not seen before
    PROCESS_UNREADABLE, // procfs refuses, or pids of the driver mean nothing here
    PROCESS_POD,
    PROCESS_HOST, // of no pod
};

struct process_identity {
    enum process_kind kind;
    char pod_uid[POD_UID_BYTES];
    char container_id[CONTAINER_ID_BYTES];
    char name[16];        // comm
    uint64_t start_ticks; // field 22 of stat
    bool own_pod;         // this program's own pod, or its own helper
};

struct process_map;
// proc_path: "/proc", or where the host's is mounted; one that can't be read hides all. 0, -ENOMEM.
int must_use process_map_new(const char *proc_path, struct process_map **out);
void process_map_free(struct process_map *m);
// What is known of a pid now. Read at first sight, then again every minute (a host's process every
// 10 s: it may be moved to its pod) and when another process has the pid; one that has ended keeps
// its identity for 30 s, because the driver's shares come late. Asked again with the same now_ns it
// costs nothing. False: no memory. At most LIMIT_PROCESS_MAP pids; more evict the longest unseen.
bool process_map_find(struct process_map *m, uint32_t pid, uint64_t now_ns,
                      struct process_identity *out);
// Drops what has not been asked for in 30 s; once a pass.
void process_map_sweep(struct process_map *m, uint64_t now_ns);

enum process_view {
    PROCESS_VIEW_HOST, // this program is in the host's PID namespace (or proc_path is the host's)
    PROCESS_VIEW_PRIVATE, // it is not: pids of other containers can't be had (hostPID is missing)
    PROCESS_VIEW_UNKNOWN, // a nested node (kind): pids may be right
};
enum process_view process_map_view(const struct process_map *m);
const char *process_view_text(enum process_view v); // "host"

struct process_map_stats {
    size_t known;
    uint64_t reads, gone, unreadable;
};
void process_map_get_stats(const struct process_map *m, struct process_map_stats *out);
