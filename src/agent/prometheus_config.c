// SPDX-License-Identifier: Apache-2.0
// The root of prometheus.yaml. All that is read lies in one arena beside the configuration, but for
// compiled rules; it is overwritten before it goes, since it may hold passwords. The trees of the
// files are, too.
#include "agent/prometheus_config.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>

#include "agent/prometheus_config_internal.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/map.h"

struct holder {
    struct prom_config config;
    struct arena arena;
    size_t capacity; // of jobs
};

struct root_section {
    const struct yaml_node *global, *scrape_configs;
    struct config_list files; // scrape_config_files
};

// What reading one configuration takes.
struct loading {
    struct config_reader reader;
    struct holder *holder;
    struct prom_global global;
    struct buf ignored;
    struct map names; // of jobs, to struct yaml_node *
    // scrape_config_files are read, and where they are is appended, one path a line; NULL: they are
    // not
    struct buf *watched;
};

// --- The root ---

static void read_global(struct config_reader *r, const struct yaml_node *n, void *section)
{
    ((struct root_section *)section)->global = n;
}

static void read_scrape_configs(struct config_reader *r, const struct yaml_node *n, void *section)
{
    ((struct root_section *)section)->scrape_configs = n;
}

static const struct config_key root_keys[] = {
    {"global", CONFIG_CUSTOM, 0, read_global},
    {"scrape_configs", CONFIG_CUSTOM, 0, read_scrape_configs},
    {"scrape_config_files", CONFIG_LIST, offsetof(struct root_section, files)},
    {"runtime", CONFIG_IGNORED},
    {"alerting", CONFIG_UNUSED},
    {"rule_files", CONFIG_UNUSED},
    {"remote_write", CONFIG_UNUSED},
    {"remote_read", CONFIG_UNUSED},
    {"storage", CONFIG_UNUSED},
    {"tracing", CONFIG_UNUSED},
    {"otlp", CONFIG_UNUSED},
    {NULL},
};

// --- Jobs ---

static struct prom_job *add_job(struct loading *l)
{
    struct holder *h = l->holder;
    struct prom_config *c = &h->config;
    if (c->job_count == h->capacity) {
        size_t capacity = h->capacity ? h->capacity * 2 : 16;
        struct prom_job *jobs = config_alloc(&l->reader, capacity, sizeof(*jobs));
        if (!jobs)
            return NULL;
        if (c->job_count)
            memcpy(jobs, c->jobs, c->job_count * sizeof(*jobs));
        c->jobs = jobs;
        h->capacity = capacity;
    }
    return &c->jobs[c->job_count++];
}

static void check_name(struct loading *l, const struct yaml_node *n, const struct prom_job *job)
{
    if (!job->name || !*job->name)
        return;
    const struct yaml_node *place = config_place(n, "job_name");
    if (map_find(&l->names, sv_from(job->name)))
        config_problem(&l->reader, place, "a second job '%.64s'", job->name);
    else if (map_put(&l->names, sv_from(job->name), (void *)(uintptr_t)n, NULL) < 0)
        l->reader.failure = -ENOMEM;
}

static void read_jobs(struct loading *l, const struct yaml_node *list)
{
    struct config_reader *r = &l->reader;
    if (!list || !config_expect(r, list, YAML_SEQUENCE, "a list of jobs"))
        return;
    for (const struct yaml_node *n = list->first; n && !r->failure; n = n->next) {
        if (l->holder->config.job_count == LIMIT_PROM_JOBS)
            return config_problem(r, n, "more than %u jobs", LIMIT_PROM_JOBS);
        if (yaml_is_null(n)) {
            config_problem(r, n, "an empty section");
            continue;
        }
        struct prom_job *job = add_job(l);
        if (!job)
            return;
        prom_job_read(r, n, &l->global, job);
        check_name(l, n, job);
    }
}

// --- scrape_config_files ---

static void add_error(struct config_reader *r, const struct error *err)
{
    char text[sizeof(err->file) + sizeof(err->text) + 32];
    r->problems++;
    if (err->code == -ENOMEM)
        r->failure = -ENOMEM;
    if (r->errors) {
        buf_add_str(r->errors, error_text(err, text, sizeof(text)));
        buf_add_char(r->errors, '\n');
    }
}

static int read_document(const char *path, struct yaml_document **out, struct error *err)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES + 1);
    int r = file_read(path, &text, err);
    if (r == 0)
        r = yaml_parse(buf_sv(&text), path, out, err);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_deinit(&text);
    return r;
}

static void read_job_file(struct loading *l, const char *path)
{
    static const struct config_key keys[] = {
        {"scrape_configs", CONFIG_CUSTOM, 0, read_scrape_configs},
        {NULL},
    };
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    struct root_section s = {0};
    const char *outer = l->reader.file;
    if (read_document(path, &d, &err) < 0)
        return add_error(&l->reader, &err);
    l->reader.file = path;
    config_read_section(&l->reader, yaml_root(d), keys, &s);
    read_jobs(l, s.scrape_configs);
    l->reader.file = outer;
    yaml_document_erase(d);
}

static void watch(struct loading *l, struct sv path)
{
    buf_add_sv(l->watched, path);
    buf_add_char(l->watched, '\n');
}

// New files of a pattern show in its directory.
static void watch_directory(struct loading *l, const char *pattern)
{
    const char *slash = strrchr(pattern, '/');
    size_t length = slash ? (size_t)(slash - pattern) : 0;
    watch(l, !slash ? SV(".") : !length ? SV("/") : (struct sv){pattern, length});
}

// A pattern without a match is none, as in Prometheus.
static void read_job_files(struct loading *l, const char *pattern)
{
    glob_t found = {0};
    watch_directory(l, pattern);
    int r = glob(pattern, 0, NULL, &found);
    if (r == GLOB_NOSPACE)
        l->reader.failure = -ENOMEM;
    for (size_t i = 0; r == 0 && i < found.gl_pathc && !l->reader.failure; i++) {
        watch(l, sv_from(found.gl_pathv[i]));
        read_job_file(l, found.gl_pathv[i]);
    }
    globfree(&found);
}

static void check_pattern(struct config_reader *r, const struct config_list *files)
{
    for (const struct yaml_node *n = files->node ? files->node->first : NULL; n; n = n->next) {
        if (n->kind == YAML_SCALAR && !prom_is_pattern(n->scalar))
            config_problem(r, n, "'%.64s': expected a path with a * in the last element only",
                           n->scalar.ptr);
    }
}

// --- One configuration ---

static void read_root(struct loading *l, const struct yaml_node *root)
{
    struct config_reader *r = &l->reader;
    struct root_section s = {0};
    config_read_section(r, root, root_keys, &s);
    prom_global_read(r, s.global, &l->global);
    read_jobs(l, s.scrape_configs);
    unsigned before = r->problems;
    check_pattern(r, &s.files);
    if (s.files.count && !l->watched)
        config_ignore(r, SV("scrape_config_files"));
    for (size_t i = 0; l->watched && r->problems == before && i < s.files.count && !r->failure;
         i++) {
        char *pattern = config_path(r, sv_from(s.files.items[i]));
        if (pattern)
            read_job_files(l, pattern);
    }
    struct prom_config *c = &l->holder->config;
    c->external_labels = l->global.external_labels;
    c->external_label_count = l->global.external_label_count;
    c->file = config_text(r, sv_from(r->file));
    c->ignored = config_text(r, buf_sv(&l->ignored));
}

static void free_holder(struct holder *h)
{
    for (size_t i = 0; i < h->config.job_count; i++)
        prom_job_deinit(&h->config.jobs[i]);
    arena_erase(&h->arena);
    arena_deinit(&h->arena);
    free(h);
}

static int outcome(struct loading *l)
{
    struct config_reader *r = &l->reader;
    if (r->failure == -EFBIG || l->ignored.error == -EFBIG) {
        struct error err = ERROR_INIT;
        (void)error_set_at(&err, -EINVAL, r->file, 0, 0, "more than %u bytes when read",
                           LIMIT_PROM_CONFIG_BYTES);
        add_error(r, &err);
        return -EINVAL;
    }
    if (r->failure || l->ignored.error)
        return -ENOMEM;
    return r->problems ? -EINVAL : 0;
}

static int read_config(const struct yaml_node *root, const char *file, struct prom_config **out,
                       struct buf *errors, struct buf *watched)
{
    struct holder *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->config.refs = 1;
    h->arena = ARENA_INIT(LIMIT_PROM_CONFIG_BYTES);
    struct loading l = {
        .reader = {.file = file, .arena = &h->arena, .errors = errors},
        .holder = h,
        .ignored = BUF_INIT(LIMIT_PROM_IGNORED_BYTES),
        .names = MAP_INIT(LIMIT_PROM_JOBS),
        .watched = watched,
    };
    l.reader.ignored = &l.ignored;
    read_root(&l, root);
    int r = outcome(&l);
    map_deinit(&l.names);
    buf_deinit(&l.ignored);
    if (r == 0)
        *out = &h->config;
    else
        free_holder(h);
    return r;
}

static int refuse(const struct error *err, struct buf *errors)
{
    struct config_reader r = {.errors = errors};
    add_error(&r, err);
    return err->code == -ENOMEM ? -ENOMEM : -EINVAL;
}

int prom_config_parse(struct sv text, const char *file, struct prom_config **out,
                      struct buf *errors)
{
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    if (yaml_parse(text, file, &d, &err) < 0)
        return refuse(&err, errors);
    int r = read_config(yaml_root(d), file, out, errors, NULL);
    yaml_document_erase(d);
    return r;
}

int prom_config_load_watched(const char *path, struct prom_config **out, struct buf *errors,
                             struct buf *watched)
{
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    if (read_document(path, &d, &err) < 0)
        return refuse(&err, errors);
    int r = read_config(yaml_root(d), path, out, errors, watched);
    yaml_document_erase(d);
    return r;
}

int prom_config_load(const char *path, struct prom_config **out, struct buf *errors)
{
    struct buf unused = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    int r = prom_config_load_watched(path, out, errors, &unused);
    buf_deinit(&unused);
    return r;
}

struct prom_config *prom_config_ref(struct prom_config *c)
{
    c->refs++;
    return c;
}

void prom_config_unref(struct prom_config *c)
{
    if (c && --c->refs == 0)
        free_holder(container_of(c, struct holder, config));
}
