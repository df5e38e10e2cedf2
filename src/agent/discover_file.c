// SPDX-License-Identifier: Apache-2.0
// A pattern's directory is watched; some time after anything moved in it the files are looked at,
// and those whose stamp differs are read. At each refresh_interval all are read whatever their
// stamp says. A file that cannot be read keeps the targets of its last good state; one that is gone
// takes its targets along.
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "agent/discover_document.h"
#include "agent/discover_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"

#define SETTLE_NS (100 * NS_PER_MS)  // writers write in pieces
#define LOOK_AGAIN_NS (5 * NS_PER_S) // for a directory that is not there yet

struct file {
    struct file *next;
    struct file_stamp stamp;
    bool is_seen;  // in the look that is under way
    bool is_given; // its targets were told
    char *problem; // NULL: its last reading was good
    char path[];
};

struct pattern {
    struct discover_file *owner;
    const char *path;
    char *directory;         // "." for none
    const char *name;        // the last element, in path
    struct loop_path *watch; // NULL: the directory cannot be watched now
    struct file_stamp seen;  // which directory that is
};

struct discover_file {
    struct loop *loop;
    const struct prom_file_sd *config;
    struct discover_events events;
    struct pattern *patterns;
    struct loop_timer *look_timer, *refresh_timer;
    bool is_settling; // a look is due within SETTLE_NS
    struct file *files;
    size_t file_count;
};

// --- One file ---

static bool is_yaml(const char *path)
{
    struct sv s = sv_from(path);
    return sv_ends_with(s, SV(".yml")) || sv_ends_with(s, SV(".yaml")) ||
           sv_ends_with(s, SV(".YML")) || sv_ends_with(s, SV(".YAML"));
}

static int read_group(const char *path, struct target_group **out, struct error *err)
{
    cleanup(buf_deinit) struct buf text = BUF_INIT(LIMIT_JSON_BYTES);
    int r = file_read(path, &text, err);
    if (r < 0)
        return r;
    const struct label extra = {SV("__meta_filepath"), sv_from(path)};
    return is_yaml(path) ? discover_document_read_yaml(buf_sv(&text), path, &extra, out, err)
                         : discover_document_read_json(buf_sv(&text), path, &extra, out, err);
}

static void read_file(struct discover_file *f, struct file *x)
{
    struct target_group *group;
    struct error err = ERROR_INIT;
    char text[sizeof(err.text) + sizeof(err.file) + 32];
    x->stamp = file_stamp(x->path); // before reading: a change meanwhile is seen next time
    int r = read_group(x->path, &group, &err);
    free(x->problem);
    x->problem = NULL;
    if (r < 0) {
        x->problem = sv_dup(sv_from(error_text(&err, text, sizeof(text))));
        return;
    }
    x->is_given = true;
    f->events.group(f->events.user, x->path, group);
}

static void free_file(struct file *x)
{
    free(x->problem);
    free(x);
}

static struct file *find_file(struct discover_file *f, const char *path)
{
    for (struct file *x = f->files; x; x = x->next) {
        if (strcmp(x->path, path) == 0)
            return x;
    }
    if (f->file_count >= LIMIT_SD_FILES)
        return NULL;
    size_t bytes = strlen(path) + 1;
    struct file *x = calloc(1, sizeof(*x) + bytes);
    if (!x)
        return NULL;
    memcpy(x->path, path, bytes);
    x->next = f->files;
    f->files = x;
    f->file_count++;
    return x;
}

static void see_file(struct discover_file *f, const char *path, bool read_all)
{
    struct file *x = find_file(f, path);
    if (!x) {
        log_warn("files of targets left out: more than this program takes, or no memory",
                 LOG_LIMIT(path), LOG_STR("file", path), LOG_U64("most", LIMIT_SD_FILES));
        return;
    }
    if (x->is_seen)
        return;
    x->is_seen = true;
    struct file_stamp now = file_stamp(path);
    if (read_all || !file_stamp_equals(&now, &x->stamp))
        read_file(f, x);
}

// --- Patterns ---

static bool is_plain(const char *name)
{
    return !strpbrk(name, "*?[\\");
}

static void see_matches(struct discover_file *f, const struct pattern *p, bool read_all)
{
    DIR *directory = opendir(p->directory);
    struct dirent *entry;
    size_t prefix = (size_t)(p->name - p->path);
    for (size_t i = 0; directory && i < LIMIT_SD_DIRECTORY_ENTRIES && (entry = readdir(directory));
         i++) {
        char path[4096];
        size_t length = strlen(entry->d_name);
        if (fnmatch(p->name, entry->d_name, 0) != 0 || prefix + length >= sizeof(path))
            continue;
        memcpy(path, p->path, prefix);
        memcpy(path + prefix, entry->d_name, length + 1);
        see_file(f, path, read_all);
    }
    if (directory)
        (void)closedir(directory);
}

static void see_pattern(struct discover_file *f, const struct pattern *p, bool read_all)
{
    if (!is_plain(p->name))
        return see_matches(f, p, read_all);
    struct file_stamp stamp = file_stamp(p->path);
    if (stamp.there || stamp.error != ENOENT)
        see_file(f, p->path, read_all);
}

static void changed(void *user, const char *name)
{
    struct pattern *p = user;
    (void)name; // a ConfigMap changes by a link that no pattern names
    if (p->owner->is_settling)
        return; // who writes all the time does not put it off
    p->owner->is_settling = true;
    loop_timer_set(p->owner->look_timer, SETTLE_NS, 0);
}

static void watch_directory(struct discover_file *f, struct pattern *p)
{
    for (struct pattern *q = f->patterns; q < p; q++) {
        if (strcmp(q->directory, p->directory) == 0)
            return; // by that one
    }
    struct file_stamp now = file_stamp(p->directory);
    if (p->watch && now.there && now.device == p->seen.device && now.inode == p->seen.inode)
        return;
    loop_path_free(TAKE_PTR(p->watch)); // of a directory that has gone
    p->seen = now;
    if (now.there && loop_path_new(f->loop, p->directory, changed, p, &p->watch) < 0)
        p->watch = NULL; // it is tried again
}

static bool is_watched(const struct discover_file *f, const struct pattern *p)
{
    for (const struct pattern *q = f->patterns; q <= p; q++) {
        if (q->watch && strcmp(q->directory, p->directory) == 0)
            return true;
    }
    return false;
}

// --- A look ---

static void forget_unseen(struct discover_file *f)
{
    for (struct file **at = &f->files; *at;) {
        struct file *x = *at;
        if (x->is_seen) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        f->file_count--;
        if (x->is_given)
            f->events.group(f->events.user, x->path, NULL);
        free_file(x);
    }
}

static const char *first_problem(const struct discover_file *f)
{
    for (const struct file *x = f->files; x; x = x->next) {
        if (x->problem)
            return x->problem;
    }
    return NULL;
}

static void look(struct discover_file *f, bool read_all)
{
    for (struct file *x = f->files; x; x = x->next)
        x->is_seen = false;
    f->is_settling = false;
    bool watched = true;
    for (size_t i = 0; i < f->config->file_count; i++) {
        watch_directory(f, &f->patterns[i]); // before looking, so that nothing falls in between
        watched = watched && is_watched(f, &f->patterns[i]);
    }
    for (size_t i = 0; i < f->config->file_count; i++)
        see_pattern(f, &f->patterns[i], read_all);
    forget_unseen(f);
    if (!watched)
        loop_timer_set(f->look_timer, LOOK_AGAIN_NS, 0);
    f->events.problem(f->events.user, first_problem(f));
    f->events.ready(f->events.user);
}

static void look_now(void *user)
{
    look(user, false);
}

static void refresh(void *user)
{
    look(user, true);
}

// --- Life ---

static int pattern_init(struct discover_file *f, struct pattern *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    *p = (struct pattern){.owner = f, .path = path, .name = slash ? slash + 1 : path};
    struct sv directory = !slash          ? SV(".")
                          : slash == path ? SV("/")
                                          : (struct sv){path, (size_t)(slash - path)};
    p->directory = sv_dup(directory);
    return p->directory ? 0 : -ENOMEM;
}

int discover_file_new(struct loop *l, const struct prom_file_sd *config,
                      const struct discover_events *events, struct discover_file **out)
{
    struct discover_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->loop = l;
    f->config = config;
    f->events = *events;
    f->patterns = calloc(config->file_count + 1, sizeof(*f->patterns));
    int r = f->patterns ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < config->file_count; i++)
        r = pattern_init(f, &f->patterns[i], config->files[i]);
    if (r == 0)
        r = loop_timer_new(l, look_now, f, &f->look_timer);
    if (r == 0)
        r = loop_timer_new(l, refresh, f, &f->refresh_timer);
    if (r < 0) {
        discover_file_free(f);
        return -ENOMEM;
    }
    loop_timer_set(f->look_timer, 0, 0);
    loop_timer_set(f->refresh_timer, config->refresh_ns, config->refresh_ns);
    *out = f;
    return 0;
}

void discover_file_free(struct discover_file *f)
{
    if (!f)
        return;
    for (size_t i = 0; f->patterns && i < f->config->file_count; i++) {
        loop_path_free(f->patterns[i].watch);
        free(f->patterns[i].directory);
    }
    while (f->files) {
        struct file *next = f->files->next;
        free_file(f->files);
        f->files = next;
    }
    loop_timer_free(f->look_timer);
    loop_timer_free(f->refresh_timer);
    free(f->patterns);
    free(f);
}
