// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "gpu/dcgm_address.h"
#include "source/dcgm_log_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A line of DCGM's log, and an address of a host engine.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv text = {(const char *)data, size};
    char *scratch = malloc(size + 1);
    if (!scratch)
        return 0;
    struct dcgm_log_line line;
    if (dcgm_log_line_parse(text, scratch, &line)) {
        assert(line.text.len > 0 && line.text.len <= size && line.text.ptr == scratch);
        assert(sv_find(line.text, SV("  ")) == (size_t)-1);
    }
    struct dcgm_address address, again;
    const char *why;
    if (dcgm_address_parse(text, &address, &why) == 0) {
        assert(dcgm_address_parse(sv_from(address.uri), &again, &why) == 0);
        assert(sv_equals(sv_from(address.uri), sv_from(again.uri)));
    }
    free(scratch);
    return 0;
}
