// SPDX-License-Identifier: Apache-2.0
// Which pod has which UID, and which container which id, by the names under /var/log: directories
// /var/log/pods/NAMESPACE_POD_UID and links /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log, as
// the kubelet makes them. They map names and prove nothing about who lives: a name stays for a
// while after its pod. Reads directories; nothing else.
#pragma once

#include "kube/pod_record.h"

struct pod_logs;
// log_path: "/var/log"; copied. 0, -ENOMEM.
int must_use pod_logs_new(const char *log_path, struct pod_logs **out);
void pod_logs_free(struct pod_logs *p);
// Reads the names anew when a directory has changed since, 1 s apart at least, and tells each pod
// (borrowed for the call); of pods of one name the newest. begin comes before them; pod: 0, or
// -ENOMEM, which ends it. True: all were told. At most LIMIT_POD_LOGS_ENTRIES names.
struct pod_logs_target {
    void (*begin)(void *user);
    int (*pod)(void *user, const struct pod_record *pod);
    void *user;
};
bool pod_logs_refresh(struct pod_logs *p, uint64_t now_ns, const struct pod_logs_target *target);
bool pod_logs_is_there(const struct pod_logs *p); // the pods' directory could be read last time

// The names themselves; false: not of that shape, as what users or other programs put there. out:
// namespace_name, name, uid, borrowed.
bool pod_logs_parse_directory(struct sv name, struct pod_record *out);
bool pod_logs_parse_link(struct sv name, struct pod_record *out,
                         struct pod_record_container *container);
