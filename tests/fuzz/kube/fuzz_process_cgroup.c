// SPDX-License-Identifier: Apache-2.0
// Any bytes as /proc/PID/cgroup: what is found is of the right form.
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kube/process_cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct process_cgroup out, again;
    bool found = process_cgroup_parse((struct sv){(const char *)data, size}, &out);
    size_t uid = strlen(out.pod_uid), id = strlen(out.container_id);
    assert(uid == 0 || uid == 32 || uid == 36);
    assert(id == 0 || id == 64);
    assert(found == (uid > 0 || out.own_pod));
    assert(found || id == 0);
    assert(!(uid > 0 && out.own_pod));
    for (size_t i = 0; i < uid; i++)
        assert(is_hex(out.pod_uid[i]) || (uid == 36 && out.pod_uid[i] == '-'));
    for (size_t i = 0; i < id; i++)
        assert(is_hex(out.container_id[i]));
    // What was found reads as itself.
    if (uid > 0) {
        char path[128];
        (void)snprintf(path, sizeof(path), "0::/pod%s", out.pod_uid);
        assert(process_cgroup_parse(sv_from(path), &again));
        assert(strcmp(again.pod_uid, out.pod_uid) == 0);
    }
    return 0;
}
