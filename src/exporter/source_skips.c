// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_skips.h"

#include <string.h>

static struct source_skip *skip_find(struct source_skips *s, uint32_t index)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].index == index)
            return &s->list[i];
    }
    return NULL;
}

void source_skips_add(struct source_skips *s, uint32_t index, const char *bus_id, bool at_once,
                      uint64_t now_ns)
{
    if (index == UINT32_MAX || skip_find(s, index) || s->count == LIMIT_GPUS)
        return;
    struct source_skip *skip = &s->list[s->count++];
    *skip = (struct source_skip){
        .index = index,
        .due_ns = at_once ? now_ns : now_ns + s->wait_ns,
        .wait_ns = s->wait_ns,
    };
    sv_copy(skip->bus_id, sizeof(skip->bus_id), sv_from(bus_id));
}

void source_skips_remove(struct source_skips *s, uint32_t index)
{
    struct source_skip *skip = skip_find(s, index);
    if (!skip)
        return;
    s->count--;
    memmove(skip, skip + 1, (size_t)(s->list + s->count - skip) * sizeof(*skip));
}

void source_skips_put_off(struct source_skips *s, uint32_t index, uint64_t now_ns)
{
    struct source_skip *skip = skip_find(s, index);
    if (!skip)
        return;
    uint64_t twice_ns = 2 * skip->wait_ns;
    skip->wait_ns = twice_ns < s->most_wait_ns ? twice_ns : s->most_wait_ns;
    skip->due_ns = now_ns + skip->wait_ns;
}

uint32_t source_skips_due(const struct source_skips *s, uint64_t now_ns)
{
    for (size_t i = 0; i < s->count; i++) {
        if (now_ns >= s->list[i].due_ns)
            return s->list[i].index;
    }
    return UINT32_MAX;
}

static void argv_add(struct source_argv *a, const char *word)
{
    a->words[a->count++] = (char *)word;
}

static void argv_add_option(struct source_argv *a, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    argv_add(a, name);
    argv_add(a, value);
}

// "1", or "1=00000000:1B:00.0" when its bus id is known.
static void print_skip(const struct source_skip *skip, char *out, size_t out_bytes)
{
    size_t n = num_print_u64(out, skip->index);
    if (skip->bus_id[0] != '\0')
        out[n++] = '=';
    sv_copy(out + n, out_bytes - n, sv_from(skip->bus_id));
}

void source_skips_argv(const struct source_skips *s, const struct source_program *program,
                       uint32_t but, struct source_argv *out)
{
    out->count = 0;
    argv_add(out, program->path);
    argv_add(out, program->source);
    argv_add_option(out, "--library", program->library);
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].index == but)
            continue;
        print_skip(&s->list[i], out->skipped[i], sizeof(out->skipped[i]));
        argv_add_option(out, "--skip", out->skipped[i]);
    }
    for (uint32_t i = 0; source_blame_text(program->blame, i, out->calls[i]); i++)
        argv_add_option(out, "--avoid", out->calls[i]);
    argv_add_option(out, "--kmsg", program->kmsg);
    argv_add_option(out, "--log-format", program->log_format);
    argv_add_option(out, "--log-level", program->log_level);
    out->kmsg_after[num_print_u64(out->kmsg_after, program->kmsg_after)] = '\0';
    if (program->kmsg_after > 0)
        argv_add_option(out, "--kmsg-after", out->kmsg_after);
    out->words[out->count] = NULL;
}
