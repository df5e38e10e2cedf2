// SPDX-License-Identifier: Apache-2.0
// Any text as a kubeconfig: read, with a server, or refused with a reason.
#include <assert.h>
#include <errno.h>
#include <stdint.h>

#include "base/limits.h"
#include "kube/api_access.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kube_access a = {.arena = ARENA_INIT(LIMIT_KUBE_ACCESS_BYTES)};
    struct error err = ERROR_INIT;
    int r =
        kube_access_parse_kubeconfig(&a, (struct sv){(const char *)data, size}, "/d/config", &err);
    assert(r == 0 || r == -EINVAL || r == -EFBIG);
    if (r == 0)
        assert(a.server && *a.server);
    else
        assert(err.text[0]);
    if (r == 0 && a.credentials_file)
        assert(*a.credentials_file == '/');
    kube_access_deinit(&a);
    return 0;
}
