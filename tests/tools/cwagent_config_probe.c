// SPDX-License-Identifier: Apache-2.0
// Reads the CloudWatch agent's configuration for tests/integration/test_cwagent_config.py and
// script/make-docs.
//   cwagent_config_probe load [--compat] [--root DIR] [PATH]
//       the configuration that is found, as JSON: one line for it, one for each declaration, one
//       for the files and directories to watch, one for the warnings. Status 1: problems, one a
//       line; 3: there is none
//   cwagent_config_probe check FILE...   a line each, "good" or the first problem
//   cwagent_config_probe keys            every key of every table, for the documentation
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cwagent_config_internal.h"
#include "base/file.h"
#include "base/limits.h"
#include "codec/json.h"

extern char **environ;

// --- Writing ---

static void add_key(struct buf *out, const char *name)
{
    if (out->data[out->len - 1] != '{')
        buf_add_char(out, ',');
    json_add_string(out, sv_from(name));
    buf_add_char(out, ':');
}

static void add_text(struct buf *out, const char *name, const char *value)
{
    add_key(out, name);
    if (value)
        json_add_string(out, sv_from(value));
    else
        buf_add_str(out, "null");
}

static void add_number(struct buf *out, const char *name, uint64_t value)
{
    add_key(out, name);
    buf_add_u64(out, value);
}

static void add_bool(struct buf *out, const char *name, bool value)
{
    add_key(out, name);
    buf_add_str(out, value ? "true" : "false");
}

static void add_texts(struct buf *out, const struct sv *items, size_t count)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        buf_add_str(out, i ? "," : "");
        json_add_string(out, items[i]);
    }
    buf_add_char(out, ']');
}

static void add_config(struct buf *out, const struct cw_config *c)
{
    buf_add_char(out, '{');
    add_text(out, "region", c->region);
    add_text(out, "role_arn", c->role_arn);
    add_bool(out, "debug", c->debug);
    add_bool(out, "add_host", c->add_host);
    add_text(out, "hostname", c->hostname);
    add_number(out, "flush_ns", c->flush_ns);
    add_text(out, "endpoint_override", c->endpoint_override);
    add_bool(out, "has_prometheus", c->has_prometheus);
    add_text(out, "cluster_name", c->cluster_name);
    add_text(out, "log_group", c->log_group);
    add_text(out, "prometheus_path", c->prometheus_path);
    add_text(out, "prometheus_text", c->prometheus_text);
    add_text(out, "metric_namespace", c->metric_namespace);
    add_bool(out, "in_container", c->in_container);
    add_bool(out, "log_unmatched", c->unmatched == CW_UNMATCHED_LOG);
    add_number(out, "retention_days", c->retention_days);
    add_text(out, "ignored", c->ignored);
    buf_add_str(out, "}\n");
}

static void add_declaration(struct buf *out, const struct cw_declaration *d)
{
    buf_add_char(out, '{');
    add_text(out, "file", d->file);
    add_number(out, "line", d->line);
    add_key(out, "source_labels");
    add_texts(out, d->source_labels, d->source_label_count);
    add_key(out, "matcher");
    json_add_string(out, d->matcher_text);
    add_key(out, "selectors");
    add_texts(out, d->selector_texts, d->selector_count);
    add_key(out, "dimensions");
    buf_add_char(out, '[');
    for (size_t i = 0; i < d->dimension_count; i++) {
        buf_add_str(out, i ? "," : "");
        add_texts(out, d->dimensions[i].names, d->dimensions[i].count);
    }
    buf_add_str(out, "]}\n");
}

static void add_lines(struct buf *out, struct sv lines)
{
    struct sv line;
    buf_add_char(out, '[');
    for (bool first = true; sv_next(&lines, '\n', &line); first = false) {
        buf_add_str(out, first ? "" : ",");
        json_add_string(out, line);
    }
    buf_add_str(out, "]\n");
}

// --- load ---

static int load(int count, char **arguments)
{
    struct cw_sources from = {.environment = environ};
    for (int i = 0; i < count; i++) {
        if (strcmp(arguments[i], "--compat") == 0)
            from.compat = true;
        else if (strcmp(arguments[i], "--root") == 0 && i + 1 < count)
            from.root = arguments[++i];
        else
            from.path = arguments[i];
    }
    struct buf errors = BUF_INIT(1u << 20), warnings = BUF_INIT(1u << 20),
               watched = BUF_INIT(65536);
    struct buf out = BUF_INIT(1u << 24);
    struct cw_config *c = NULL;
    int r = cw_config_load(&from, &c, &errors, &warnings);
    if (r < 0) {
        cw_sources_add_watched(&from, &watched);
        buf_add_sv(&out, buf_sv(&errors));
    } else {
        add_config(&out, c);
        for (size_t i = 0; i < c->declaration_count; i++)
            add_declaration(&out, &c->declarations[i]);
        cw_config_add_watched(c, &watched);
    }
    add_lines(&out, buf_sv(&watched));
    add_lines(&out, buf_sv(&warnings));
    fputs(buf_cstr(&out), stdout);
    cw_config_unref(c);
    buf_deinit(&errors);
    buf_deinit(&warnings);
    buf_deinit(&watched);
    buf_deinit(&out);
    return r == 0 ? 0 : r == -EINVAL ? 1 : r == -ENOENT ? 3 : 2;
}

static int check(int count, char **paths)
{
    for (int i = 0; i < count; i++) {
        struct cw_sources from = {.path = paths[i]};
        struct buf errors = BUF_INIT(1u << 20);
        struct cw_config *c = NULL;
        int r = cw_config_load(&from, &c, &errors, NULL);
        struct sv rest = buf_sv(&errors), first = SV("good");
        if (r < 0)
            (void)sv_next(&rest, '\n', &first);
        printf("%.*s\n", SV_FMT(first));
        cw_config_unref(c);
        buf_deinit(&errors);
    }
    return 0;
}

// --- keys ---

static void print_keys(const struct cw_section *s, const struct cw_section **below, size_t *count)
{
    for (const struct cw_key *k = s->keys; k->name; k++) {
        bool inert = k->offset == CW_NOWHERE;
        printf("%s\t%s\t%s\t%s\t%s\n", *s->path ? s->path : "(top)", k->name,
               k->kind ? k->kind : "", k->preset ? k->preset : "",
               k->type == CW_IGNORED ? "Not ours: accepted, and named once."
               : k->text             ? k->text
               : inert               ? "Accepted without effect."
                                     : "");
        if (k->section)
            below[(*count)++] = k->section;
    }
}

static int keys(void)
{
    const struct cw_section *sections[64] = {&cw_root_section};
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        print_keys(sections[i], sections, &count);
        if (strcmp(sections[i]->path, "logs.metrics_collected.prometheus") == 0) {
            sections[count++] = &cw_emf_section;
            sections[count++] = &cw_declaration_section;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "load") == 0)
        return load(argc - 2, argv + 2);
    if (argc > 2 && strcmp(argv[1], "check") == 0)
        return check(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "keys") == 0)
        return keys();
    fprintf(stderr, "usage: %s load [--compat] [--root DIR] [PATH] | check FILE... | keys\n",
            argv[0]);
    return 2;
}
