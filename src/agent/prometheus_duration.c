// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "agent/prometheus_config.h"
#include "base/clock.h"

// Prometheus' grammar: whole numbers with each unit once, the longest first; a year has 365 days.
int prom_parse_duration(struct sv s, uint64_t *out_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {
        {"y", 365 * 24 * 3600 * NS_PER_S},
        {"w", 7 * 24 * 3600 * NS_PER_S},
        {"d", 24 * 3600 * NS_PER_S},
        {"h", 3600 * NS_PER_S},
        {"m", 60 * NS_PER_S},
        {"s", NS_PER_S},
        {"ms", NS_PER_MS},
    };
    if (sv_equals(s, SV("0"))) {
        *out_ns = 0;
        return 0;
    }
    uint64_t total = 0;
    size_t next = 0; // unit that may stand here
    bool good = s.len > 0;
    while (good && s.len) {
        uint64_t number = 0, part;
        size_t digits = 0, letters = 0;
        for (; digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9' && good; digits++)
            good = !__builtin_mul_overflow(number, 10, &number) &&
                   !__builtin_add_overflow(number, (unsigned)(s.ptr[digits] - '0'), &number);
        while (digits + letters < s.len && s.ptr[digits + letters] >= 'a' &&
               s.ptr[digits + letters] <= 'z')
            letters++;
        while (next < ARRAY_SIZE(units) &&
               !sv_equals(sv_sub(s, digits, letters), sv_from(units[next].name)))
            next++;
        good = good && digits > 0 && next < ARRAY_SIZE(units) &&
               !__builtin_mul_overflow(number, units[next].ns, &part) &&
               !__builtin_add_overflow(total, part, &total) && total <= INT64_MAX;
        s = sv_sub(s, digits + letters, s.len);
        next++;
    }
    if (good)
        *out_ns = total;
    return good ? 0 : -EINVAL;
}
