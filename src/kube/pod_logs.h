// SPDX-License-Identifier: Apache-2.0
// Which pod has which UID, and which container which id, by the names under /var/log: directories
// /var/log/pods/NAMESPACE_POD_UID/CONTAINER and links
// /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log. They map names and prove nothing about who
// lives. Reads directories; nothing else.
#pragma once

#include "kube/pod_record.h"

struct pod_logs;
// log_path: "/var/log". 0, -ENOMEM.
int must_use pod_logs_new(const char *log_path, struct pod_logs **out);
void pod_logs_free(struct pod_logs *p);
// Reads the names anew when the directories changed (mtime), 1 s apart at least, and tells each
// pod; true: it did. At most LIMIT_POD_LOGS_ENTRIES names.
bool pod_logs_refresh(struct pod_logs *p, uint64_t now_ns,
                      void (*pod)(void *user, const struct pod_record *pod), void *user);
bool pod_logs_is_there(const struct pod_logs *p); // the directory could be read last time
