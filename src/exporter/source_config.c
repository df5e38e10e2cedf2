// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exporter/source_argv.h"
#include "exporter/source_process_internal.h"
#include "gpu/catalogue.h"

#define PROBE_WAIT_MOST 12 // times probe_ns

static int copy_extra(struct source_process *s, const char *const *words)
{
    s->config.extra = NULL;
    size_t count = 0;
    while (words && words[count])
        count++;
    char **copy = calloc(count + 1, sizeof(*copy));
    if (!copy || count > SOURCE_EXTRA_MAX) {
        free(copy);
        return copy ? -E2BIG : -ENOMEM;
    }
    s->config.extra = (const char *const *)copy;
    for (size_t i = 0; i < count; i++) {
        copy[i] = sv_dup(sv_from(words[i]));
        if (!copy[i])
            return -ENOMEM;
    }
    return 0;
}

void source_free_config(struct source_process *s)
{
    for (size_t i = 0; s->config.extra && s->config.extra[i]; i++)
        free((char *)s->config.extra[i]);
    free((char **)s->config.extra);
    free((char *)s->config.path);
    free((char *)s->config.source);
    free((char *)s->config.library);
    free((char *)s->config.kmsg_path);
}

static void set_default(uint64_t *value, uint64_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

int source_copy_config(struct source_process *s, const struct source_process_config *config)
{
    s->config = *config;
    s->config.path = sv_dup(sv_from(config->path));
    s->config.source = sv_dup(sv_from(config->source));
    s->config.library = sv_dup(sv_from(config->library ? config->library : ""));
    s->config.kmsg_path = sv_dup(sv_from(config->kmsg_path ? config->kmsg_path : ""));
    int r = copy_extra(s, config->extra);
    struct source_process_timing *t = &s->config.timing;
    set_default(&t->hello_ns, 10 * NS_PER_S);
    set_default(&t->backoff_least_ns, NS_PER_S);
    set_default(&t->backoff_most_ns, 60 * NS_PER_S);
    set_default(&t->healthy_ns, 60 * NS_PER_S);
    set_default(&t->probe_ns, 300 * NS_PER_S);
    set_default(&t->patience_ns, NS_PER_S);
    set_default(&t->pulse_ns, 30 * NS_PER_S);
    set_default(&s->config.call_deadline_ns, 10 * NS_PER_S);
    uint64_t tenth_ns = s->config.call_deadline_ns / 10 + 1;
    set_default(&t->watchdog_ns, tenth_ns < NS_PER_S ? tenth_ns : NS_PER_S);
    s->skips.wait_ns = t->probe_ns;
    s->skips.most_wait_ns = PROBE_WAIT_MOST * t->probe_ns;
    bool whole = s->config.path && s->config.source && s->config.library && s->config.kmsg_path;
    return whole ? r : -ENOMEM;
}

// The shortest period among the classes that are watched decides how long silence is normal.
uint64_t source_silence_of(const struct source_process *s, const struct frame_watch *watch,
                           const uint16_t *field_ids)
{
    uint64_t shortest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct field_info *field = field_find(field_ids[i]);
        if (field && watch->period_ns[field->cost] < shortest_ns)
            shortest_ns = watch->period_ns[field->cost];
    }
    if (shortest_ns > UINT64_MAX / 8)
        return 0;
    return 4 * shortest_ns + 3 * s->config.call_deadline_ns;
}
