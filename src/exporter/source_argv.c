// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_argv.h"

#include "base/sv.h"

static void add(struct source_argv *a, const char *word)
{
    a->words[a->count++] = (char *)word;
}

static void add_option(struct source_argv *a, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    add(a, name);
    add(a, value);
}

// "1", or "1=00000000:1B:00.0" when its bus id is known.
static void print_skip(const struct source_skip *skip, char *out, size_t out_bytes)
{
    size_t n = num_print_u64(out, skip->index);
    if (skip->bus_id[0] != '\0')
        out[n++] = '=';
    sv_copy(out + n, out_bytes - n, sv_from(skip->bus_id));
}

void source_argv_set(struct source_argv *a, const struct source_program *program, uint32_t but)
{
    const struct source_skips *s = program->skips;
    a->count = 0;
    add(a, program->path);
    add(a, program->source);
    add_option(a, "--library", program->library);
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].index == but)
            continue;
        print_skip(&s->list[i], a->skipped[i], sizeof(a->skipped[i]));
        add_option(a, "--skip", a->skipped[i]);
    }
    for (uint32_t i = 0; source_blame_text(program->blame, i, a->calls[i]); i++)
        add_option(a, "--avoid", a->calls[i]);
    add_option(a, "--kmsg", program->kmsg);
    add_option(a, "--log-format", program->log_format);
    add_option(a, "--log-level", program->log_level);
    a->kmsg_after[num_print_u64(a->kmsg_after, program->kmsg_after)] = '\0';
    if (program->kmsg_after > 0)
        add_option(a, "--kmsg-after", a->kmsg_after);
    for (size_t i = 0; program->extra && program->extra[i] && i < SOURCE_EXTRA_MAX; i++)
        add(a, program->extra[i]);
    a->words[a->count] = NULL;
}
