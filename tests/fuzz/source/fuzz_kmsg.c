// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "source/kmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kmsg_xid xid;
    uint64_t key;
    if (kmsg_parse((struct sv){(const char *)data, size}, &xid)) {
        assert(xid.xid > 0 && xid.xid <= 65535);
        assert(strnlen(xid.text, sizeof(xid.text)) < sizeof(xid.text));
        assert(sv_is_utf8(sv_from(xid.text)));
    }
    (void)kmsg_bus_key_parse((struct sv){(const char *)data, size}, &key);
    return 0;
}
