// SPDX-License-Identifier: Apache-2.0
// dcgm-exporter's own counters, DCGM_EXP_*.
#include "exporter/render_internal.h"

size_t render_exp_add(struct render_layout *l, const struct render_device_family *f,
                      const struct render_input *in, struct buf *out)
{
    (void)l;
    (void)f;
    (void)in;
    (void)out;
    return 0;
}
