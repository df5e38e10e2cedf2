// SPDX-License-Identifier: Apache-2.0
// Any bytes are a configuration file that keeps its promises, or are refused with a reason.
#include <assert.h>

#include "base/limits.h"
#include "exporter/config_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_file c = {0};
    struct error err = ERROR_INIT;
    if (config_file_parse((struct sv){(const char *)data, size}, "f", &c, &err) < 0) {
        assert(!c.document && err.text[0]);
        return 0;
    }
    assert(c.group_count <= LIMIT_CONFIG_GROUPS);
    assert(!(c.metrics_file.len && c.fields));
    for (size_t i = 0; i < c.group_count; i++) {
        const struct config_group *g = &c.groups[i];
        assert(g->name.len && g->period_ns && g->patterns->count);
        for (const struct yaml_node *n = g->patterns->first; n; n = n->next)
            (void)config_pattern_matches(n->scalar, SV("DCGM_FI_DEV_GPU_TEMP"));
    }
    config_file_deinit(&c);
    return 0;
}
