// SPDX-License-Identifier: Apache-2.0
// Where cwagentconfig.json is looked for. First the files are listed, then read, then parsed
// together; what is listed is also what is worth watching.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/cwagent_config_internal.h"
#include "base/file.h"
#include "base/limits.h"

#define CONTAINER_DIRECTORY "/etc/cwagentconfig"
#define HOST_FILE "/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.json"
#define HOST_DIRECTORY "/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d"
#define VARIABLE "CW_CONFIG_CONTENT"
#define DIRECTORY_DEPTH 4   // of directories in directories; links may go round in circles
#define WATCHED_BYTES 65536 // 64 paths of usual length; what does not fit is not watched

struct search {
    const struct cw_sources *from;
    char *paths[LIMIT_CW_FILES]; // owned
    size_t count;
    const char *variable; // the text, if it is what counts
    struct buf watched;   // paths, one a line
    struct buf *errors;   // may be NULL
    bool is_missing;      // nothing is there
    unsigned problems;
    int failure;
};

static void tell(struct search *s, const char *path, const char *text)
{
    s->problems++;
    if (!s->errors)
        return;
    buf_add_str(s->errors, path);
    buf_add_str(s->errors, ": ");
    buf_add_str(s->errors, text);
    buf_add_char(s->errors, '\n');
}

static void tell_errno(struct search *s, const char *path, int error)
{
    tell(s, path, strerror(error));
}

static void watch(struct search *s, const char *path)
{
    size_t length = strlen(path);
    if (strchr(path, '\n') || s->watched.len + length + 2 > s->watched.max)
        return;
    buf_add_str(&s->watched, path);
    buf_add_char(&s->watched, '\n');
    if (s->watched.error)
        s->failure = s->watched.error;
}

static void add_file(struct search *s, const char *path)
{
    if (s->count == LIMIT_CW_FILES)
        return tell(s, path, "more than 64 files");
    watch(s, path);
    s->paths[s->count] = sv_dup(sv_from(path));
    if (s->paths[s->count])
        s->count++;
    else
        s->failure = -ENOMEM;
}

// Dots: what Kubernetes keeps beside the files of a ConfigMap, and editors. YAML is for others, and
// .tmp what the agent's own tools leave half done.
static bool is_candidate(struct sv name)
{
    return name.len && name.ptr[0] != '.' && !sv_ends_with(name, SV(".yaml")) &&
           !sv_ends_with(name, SV(".yml")) && !sv_ends_with(name, SV(".tmp"));
}

static void add_directory(struct search *s, const char *path, unsigned depth);

static void add_entry(struct search *s, const char *directory, const char *name, unsigned depth)
{
    struct buf path = BUF_INIT(PATH_MAX);
    struct stat st;
    buf_add_str(&path, directory);
    buf_add_char(&path, '/');
    buf_add_str(&path, name);
    const char *whole = buf_cstr(&path);
    if (path.error == -EFBIG)
        tell(s, directory, "a path in it is too long");
    else if (path.error)
        s->failure = path.error;
    else if (stat(whole, &st) < 0)
        tell_errno(s, whole, errno);
    else if (S_ISDIR(st.st_mode))
        add_directory(s, whole, depth + 1);
    else if (S_ISREG(st.st_mode))
        add_file(s, whole);
    buf_deinit(&path);
}

static void add_directory(struct search *s, const char *path, unsigned depth)
{
    if (depth > DIRECTORY_DEPTH)
        return tell(s, path, "directories nested too deeply");
    watch(s, path);
    DIR *d = opendir(path);
    if (!d)
        return tell_errno(s, path, errno);
    unsigned before = s->problems;
    for (const struct dirent *e; (e = readdir(d)) && !s->failure && s->problems == before;) {
        if (is_candidate(sv_from(e->d_name)))
            add_entry(s, path, e->d_name, depth);
    }
    (void)closedir(d);
}

// Whatever stands there: a file, a directory or nothing.
static void add_place(struct search *s, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        watch(s, path);
        if (errno != ENOENT && errno != ENOTDIR)
            tell_errno(s, path, errno);
    } else if (S_ISDIR(st.st_mode)) {
        add_directory(s, path, 0);
    } else {
        add_file(s, path);
    }
}

static void add_agent_place(struct search *s, const char *path)
{
    struct buf whole = BUF_INIT(PATH_MAX);
    buf_add_str(&whole, s->from->root ? s->from->root : "");
    buf_add_str(&whole, path);
    const char *text = buf_cstr(&whole);
    if (whole.error)
        s->failure = whole.error;
    else
        add_place(s, text);
    buf_deinit(&whole);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find_files(struct search *s)
{
    const char *variable = cw_environment_find(s->from, VARIABLE);
    if (s->from->path) {
        add_place(s, s->from->path);
    } else {
        add_agent_place(s, CONTAINER_DIRECTORY);
        if (!s->count && !s->problems && !s->failure) {
            add_agent_place(s, HOST_FILE);
            add_agent_place(s, HOST_DIRECTORY);
        }
        if (!s->count && !s->problems && variable && *variable)
            s->variable = variable;
    }
    s->is_missing = !s->count && !s->problems && !s->variable;
    if (s->count)
        qsort(s->paths, s->count, sizeof(*s->paths), compare_paths);
}

static void tell_missing(struct search *s)
{
    const char *root = s->from->root ? s->from->root : "";
    struct stat st;
    if (s->from->path)
        return tell(s, s->from->path,
                    stat(s->from->path, &st) < 0 ? strerror(errno) : "no JSON file in it");
    if (s->errors)
        buf_add_fmt(s->errors,
                    "no configuration in %s" CONTAINER_DIRECTORY ", %s" HOST_FILE
                    ", %s" HOST_DIRECTORY " or the environment variable " VARIABLE "\n",
                    root, root, root);
}

static void search_deinit(struct search *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->paths[i]);
    buf_deinit(&s->watched);
}

// --- Reading ---

static void read_files(struct search *s, struct buf *bodies, struct cw_text *texts)
{
    for (size_t i = 0; i < s->count && !s->failure; i++) {
        bodies[i] = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
        int r = file_read(s->paths[i], &bodies[i], NULL);
        if (r == -ENOMEM)
            s->failure = r;
        else if (r < 0)
            tell(s, s->paths[i], r == -EFBIG ? "larger than 1 MiB" : strerror(-r));
        texts[i] = (struct cw_text){buf_sv(&bodies[i]), s->paths[i]};
    }
}

static int parse_files(struct search *s, struct cw_config **out, struct buf *warnings)
{
    struct buf bodies[LIMIT_CW_FILES] = {0};
    struct cw_text texts[LIMIT_CW_FILES];
    read_files(s, bodies, texts);
    int r = s->failure ? s->failure : s->problems ? -EINVAL : 0;
    if (r == 0)
        r = cw_config_parse(texts, s->count, s->from, out, s->errors, warnings);
    for (size_t i = 0; i < s->count; i++)
        buf_deinit(&bodies[i]);
    return r;
}

static int parse_found(struct search *s, struct cw_config **out, struct buf *warnings)
{
    struct cw_text variable = {sv_from(s->variable), VARIABLE};
    if (s->failure)
        return -ENOMEM;
    if (s->is_missing) {
        tell_missing(s);
        return -ENOENT;
    }
    if (s->problems)
        return -EINVAL;
    return s->variable ? cw_config_parse(&variable, 1, s->from, out, s->errors, warnings)
                       : parse_files(s, out, warnings);
}

// A configuration that is no fault and does nothing.
static void warn_of_silence(const struct search *s, const struct cw_config *c, struct buf *warnings)
{
    const char *file = s->variable ? VARIABLE : s->paths[0];
    if (!warnings || !c->has_prometheus || c->declaration_count || c->disable_metric_extraction ||
        c->unmatched != CW_UNMATCHED_DROP)
        return;
    buf_add_fmt(warnings,
                "%s: /logs/metrics_collected/prometheus: %s and podgpu.unmatched is "
                "\"drop\": no sample is sent\n",
                file,
                c->has_emf_processor ? "emf_processor has no metric_declaration"
                                     : "there is no emf_processor");
}

int cw_config_load(const struct cw_sources *from, struct cw_config **out, struct buf *errors,
                   struct buf *warnings)
{
    struct search s = {.from = from, .watched = BUF_INIT(WATCHED_BYTES), .errors = errors};
    struct cw_config *c = NULL;
    find_files(&s);
    int r = parse_found(&s, &c, warnings);
    if (r == 0) {
        buf_add_char(&s.watched, '\0');
        r = s.watched.error == -ENOMEM ? -ENOMEM : 0;
    }
    if (r == 0) {
        warn_of_silence(&s, c, warnings);
        cw_config_set_watched(c, buf_take(&s.watched, NULL));
        *out = TAKE_PTR(c);
    }
    cw_config_unref(c);
    search_deinit(&s);
    return r;
}

void cw_sources_add_watched(const struct cw_sources *from, struct buf *out)
{
    struct search s = {.from = from, .watched = BUF_INIT(WATCHED_BYTES)};
    find_files(&s);
    buf_add_sv(out, buf_sv(&s.watched));
    search_deinit(&s);
}
