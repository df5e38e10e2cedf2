// SPDX-License-Identifier: Apache-2.0
#include "base/macros.h"

#include <stdlib.h>
#include <string.h>

void mem_freep(void *p)
{
    void *owned;
    memcpy(&owned, p, sizeof(owned));
    free(owned);
}
