// SPDX-License-Identifier: Apache-2.0
// A shape's text. One that is taken keeps its promises at moments drawn from the input: duty within
// bounds, an integral that never shrinks nor grows faster than time, an edge in the future.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "burn/shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_at(const struct burn_shape *s, uint64_t t_ns)
{
    uint64_t later_ns = t_ns + 1000000000;
    uint64_t busy_ns = burn_shape_busy_ns(s, t_ns), later_busy_ns = burn_shape_busy_ns(s, later_ns);
    check(burn_shape_duty_ppm(s, t_ns) <= BURN_PPM);
    check(busy_ns <= t_ns);
    check(later_busy_ns + 1 >= busy_ns && later_busy_ns - busy_ns <= 1000000001);
    check(burn_shape_edge_ns(s, t_ns) > t_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct burn_shape s = {0};
    struct error err = ERROR_INIT;
    uint64_t t_ns = 0;
    if (size > 1024)
        return 0;
    if (burn_shape_parse((struct sv){(const char *)data, size}, &s, &err) < 0) {
        check(err.code < 0 && err.text[0] != '\0');
        return 0;
    }
    memcpy(&t_ns, data, size < sizeof(t_ns) ? size : sizeof(t_ns));
    for (int shift = 1; shift < 64; shift += 9)
        check_at(&s, t_ns >> shift);
    return 0;
}
