// SPDX-License-Identifier: Apache-2.0
// The bytes are a table of sockets, and the driver's parameters.
#include <stdint.h>
#include <stdlib.h>

#include "exporter/doctor_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sv text = {(const char *)data, size};
    struct doctor_listeners l = {.count = 0};
    doctor_read_listeners(text, 9400, &l);
    size_t once = l.count;
    doctor_read_listeners(text, 9400, &l);
    if (l.count > DOCTOR_LISTENERS_MOST ||
        (once < DOCTOR_LISTENERS_MOST / 2 && l.count != 2 * once))
        abort();
    for (size_t i = 0; i < l.count; i++)
        if (l.inodes[i] == 0)
            abort();
    int admin = doctor_read_admin_only(text);
    if (admin < -1 || admin > 1)
        abort();
    return 0;
}
