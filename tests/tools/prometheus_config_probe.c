// SPDX-License-Identifier: Apache-2.0
// Reads a prometheus.yaml for tests/integration/test_prometheus_config.py.
//   prometheus_config_probe check FILE...   prints each problem; status 1 when there is any
//   prometheus_config_probe jobs FILE       what jobs start their targets' labels with, one JSON
//   object prometheus_config_probe relabel FILE    stdin: [[JOB, {label: value}]]; prints each
//   label set after the job's
//                                           rules, null for a dropped one, as a JSON array
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/prometheus_config.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/json.h"

static struct prom_config *load(const char *path)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 20);
    int r = prom_config_load(path, &c, &errors);
    if (r < 0)
        fputs(buf_cstr(&errors), stdout);
    buf_deinit(&errors);
    return r < 0 ? NULL : c;
}

static int check(int count, char **paths)
{
    int status = 0;
    for (int i = 0; i < count; i++) {
        struct prom_config *c = load(paths[i]);
        if (!c)
            status = 1;
        prom_config_unref(c);
    }
    return status;
}

static void add_member(struct buf *out, const char *name, const char *value)
{
    buf_add_str(out, out->len && out->data[out->len - 1] == '{' ? "" : ",");
    json_add_string(out, sv_from(name));
    buf_add_char(out, ':');
    json_add_string(out, sv_from(value));
}

static void add_job(struct buf *out, const struct prom_job *j)
{
    char number[32];
    json_add_string(out, sv_from(j->name));
    buf_add_str(out, ":{");
    (void)snprintf(number, sizeof(number), "%llums",
                   (unsigned long long)(j->interval_ns / NS_PER_MS));
    add_member(out, "__scrape_interval__", number);
    (void)snprintf(number, sizeof(number), "%llums",
                   (unsigned long long)(j->timeout_ns / NS_PER_MS));
    add_member(out, "__scrape_timeout__", number);
    add_member(out, "__metrics_path__", j->metrics_path);
    add_member(out, "__scheme__", j->scheme);
    for (size_t i = 0; i < j->param_count; i++) {
        char name[256];
        (void)snprintf(name, sizeof(name), "__param_%s", j->params[i].name);
        if (i == 0 ||
            strcmp(j->params[i - 1].name, j->params[i].name) != 0) // the first value counts
            add_member(out, name, j->params[i].value);
    }
    buf_add_char(out, '}');
}

static int print(struct buf *out)
{
    puts(buf_cstr(out));
    int status = out->error ? 2 : 0;
    buf_deinit(out);
    return status;
}

static int jobs(const char *path)
{
    struct prom_config *c = load(path);
    struct buf out = BUF_INIT(1u << 24);
    if (!c)
        return 1;
    for (size_t i = 0; i < c->job_count; i++) {
        buf_add_char(&out, i ? ',' : '{');
        add_job(&out, &c->jobs[i]);
    }
    buf_add_char(&out, '}');
    prom_config_unref(c);
    return print(&out);
}

static void add_labels(struct buf *out, const struct labels *l)
{
    buf_add_char(out, '{');
    for (size_t i = 0; i < l->count; i++) {
        buf_add_str(out, i ? "," : "");
        json_add_string(out, l->items[i].name);
        buf_add_char(out, ':');
        json_add_string(out, l->items[i].value);
    }
    buf_add_char(out, '}');
}

static void relabel_one(struct buf *out, const struct prom_config *c, const struct json_node *pair)
{
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels l;
    const struct prom_job *j = c->jobs;
    while (j < c->jobs + c->job_count && !sv_equals(sv_from(j->name), pair->first->string))
        j++;
    if (j == c->jobs + c->job_count)
        abort();
    labels_init(&l, &arena);
    for (const struct json_node *n = pair->first->next->first; n; n = n->next) {
        if (labels_set(&l, n->key, n->string) < 0)
            abort();
    }
    int r = relabel_apply(j->relabel, &l);
    if (r == RELABEL_OUTCOME_DROP)
        buf_add_str(out, "null");
    else if (r == 0)
        add_labels(out, &l);
    else
        abort();
    arena_deinit(&arena);
}

static int relabel(const char *path)
{
    struct prom_config *c = load(path);
    struct json_document *d = NULL;
    struct buf in = BUF_INIT(LIMIT_JSON_BYTES), out = BUF_INIT(LIMIT_JSON_BYTES);
    char piece[4096];
    if (!c)
        return 1;
    for (size_t n; (n = fread(piece, 1, sizeof(piece), stdin)) > 0;)
        buf_add(&in, piece, n);
    if (json_parse(buf_sv(&in), "stdin", &d, NULL) < 0)
        return 2;
    for (const struct json_node *n = json_root(d)->first; n; n = n->next) {
        buf_add_char(&out, out.len ? ',' : '[');
        relabel_one(&out, c, n);
    }
    buf_add_char(&out, ']');
    json_document_free(d);
    prom_config_unref(c);
    buf_deinit(&in);
    return print(&out);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "check") == 0)
        return check(argc - 2, argv + 2);
    if (argc == 3 && strcmp(argv[1], "jobs") == 0)
        return jobs(argv[2]);
    if (argc == 3 && strcmp(argv[1], "relabel") == 0)
        return relabel(argv[2]);
    fprintf(stderr, "usage: %s check FILE... | jobs FILE | relabel FILE\n", argv[0]);
    return 2;
}
