// SPDX-License-Identifier: Apache-2.0
// How it works: a file has a stamp (base/file.h: one stat) and a hash of its content. An event in
// any directory that the path leads through, or the poll, compares stamps;
// when one differs the debounce runs, and after it the content decides. So a busy directory costs
// one stat an event, and a touch nothing more than a read.
//
// Directories watched: for each symlink on the way to the file, wherever it stands in the path
// (Kubernetes has `file -> ..data/file` and `..data -> ..TIMESTAMP`), the directory that holds the
// link; and the one that holds the file itself. They are worked out anew after each debounce.
//
// Times stand still for a few ms between two writes, so a file that was hashed within RACY_NS of
// its last change is hashed once more at the next poll.
#include "io/file_watch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"

#define DEBOUNCE_NS (200 * NS_PER_MS)
#define DEBOUNCE_MOST_NS                                                                           \
    (2 * NS_PER_S) // a file that is written all the time is looked at all the same
#define POLL_NS (2 * NS_PER_S)
#define RACY_NS (100 * NS_PER_MS)
#define DIRECTORIES 64 // of all files; a ConfigMap has two, whatever is in it
#define LINKS 40       // as the kernel follows

struct file {
    char *path; // absolute
    struct file_stamp stamp;
    uint64_t hash; // of the content seen last
    bool seen;     // hash is set
    bool racy;     // may have changed without a change of its stamp
    bool is_directory;
};

struct file_watch {
    struct loop *loop;
    void (*changed)(void *user);
    void *user;
    struct file *files;
    size_t file_count;
    struct directory {
        char *path;
        dev_t device; // the watch is on the directory that had this path then
        ino_t inode;
        struct loop_path *watch;
        bool used;
    } directories[DIRECTORIES];
    struct loop_timer *debounce;
    struct loop_timer *poll;
    uint64_t debounce_ns;
    uint64_t dirty_ns; // first unsettled change, 0: none
};

// --- One file ---

static bool is_recent(const struct file_stamp *s)
{
    return s->there && clock_timespec_ns(s->changed) + RACY_NS > clock_wall_ns();
}

// In whatever order the names come; hidden ones do not count: a ConfigMap's "..data" and what it
// leads to are new at each swap, whatever is in it.
static int hash_of_names(const char *path, uint64_t *out)
{
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    *out = 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        *out += e->d_name[0] == '.' ? 0 : map_hash(sv_from(e->d_name));
    (void)closedir(dir);
    return 0;
}

// A reason why the file cannot be read that will not pass by itself is a content of its own:
// whoever reads it will say so. Negative errno: not readable just now.
static int hash_of(const char *path, uint64_t *out, bool *out_is_directory)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    int r = file_read(path, &text, NULL);
    bool is_directory = r == -EISDIR;
    if (is_directory)
        r = hash_of_names(path, out);
    *out_is_directory = is_directory;
    bool passes = r == -ENOMEM || r == -EMFILE || r == -ENFILE;
    if (r == 0 && !is_directory)
        *out = map_hash(buf_sv(&text));
    else if (r < 0 && !passes)
        *out = map_hash((struct sv){(const char *)&r, sizeof(r)});
    buf_deinit(&text);
    return passes ? r : 0;
}

// Looks at the content; true when it is another one than was seen.
static bool file_settle(struct file *f)
{
    f->stamp = file_stamp(f->path);
    f->racy = is_recent(&f->stamp);
    uint64_t hash = 0;
    if (hash_of(f->path, &hash, &f->is_directory) < 0) {
        f->racy = true; // looked at again
        return false;
    }
    bool differs = !f->seen || hash != f->hash;
    f->hash = hash;
    f->seen = true;
    return differs;
}

static bool file_is_dirty(const struct file *f)
{
    struct file_stamp now = file_stamp(f->path);
    return !file_stamp_equals(&now, &f->stamp);
}

// --- Directories ---

static void on_event(void *user, const char *name);

static void directory_clear(struct directory *d)
{
    loop_path_free(d->watch);
    free(d->path);
    *d = (struct directory){0};
}

// The one with this path, or a free one, or NULL.
static struct directory *directory_find(struct file_watch *w, const char *path)
{
    struct directory *found = NULL;
    for (size_t i = 0; i < DIRECTORIES; i++) {
        struct directory *d = &w->directories[i];
        if (d->path && strcmp(d->path, path) == 0)
            return d;
        if (!d->path)
            found = d;
    }
    return found;
}

static void directory_use(struct file_watch *w, const char *path)
{
    struct directory *d = directory_find(w, path);
    struct stat st;
    if (!d || stat(path, &st) < 0)
        return; // the poll sees to it
    if (d->path && d->device == st.st_dev && d->inode == st.st_ino) {
        d->used = true;
        return;
    }
    directory_clear(d);
    d->path = sv_dup(sv_from(path));
    int r = d->path ? loop_path_new(w->loop, path, on_event, w, &d->watch) : -ENOMEM;
    if (r < 0) {
        log_warn("directory cannot be watched, its files are polled", LOG_STR("directory", path),
                 LOG_ERRNO(r), LOG_LIMIT(path));
        directory_clear(d);
        return;
    }
    d->device = st.st_dev;
    d->inode = st.st_ino;
    d->used = true;
}

// A path being followed: what is resolved, and what is still to come.
struct walk {
    char done[PATH_MAX]; // without a final slash; "" is the root
    char rest[PATH_MAX];
    unsigned links;
};

// Puts text before what is left of the path. False when that is too long.
static bool walk_prepend(struct walk *k, struct sv text, struct sv rest)
{
    if (text.len + 1 + rest.len >= sizeof(k->rest))
        return false;
    memmove(k->rest + text.len + 1, rest.ptr, rest.len);
    memcpy(k->rest, text.ptr, text.len);
    k->rest[text.len] = '/';
    k->rest[text.len + 1 + rest.len] = '\0';
    return true;
}

static void walk_up(struct walk *k)
{
    char *slash = strrchr(k->done, '/');
    if (slash)
        *slash = '\0';
}

// One component. False: the way ends here.
static bool walk_step(struct file_watch *w, struct walk *k)
{
    struct sv rest = sv_from(k->rest), name;
    if (!sv_next(&rest, '/', &name))
        return false;
    size_t parent = strlen(k->done);
    if (parent + 1 + name.len >= sizeof(k->done))
        return false;
    bool stay = name.len == 0 || sv_equals(name, SV("."));
    if (sv_equals(name, SV("..")))
        walk_up(k);
    else if (!stay) {
        k->done[parent] = '/';
        memcpy(k->done + parent + 1, name.ptr, name.len);
        k->done[parent + 1 + name.len] = '\0';
    }
    char target[PATH_MAX];
    ssize_t n = stay ? -1 : readlink(k->done, target, sizeof(target));
    if (n <= 0) {
        memmove(k->rest, rest.ptr ? rest.ptr : "", rest.len);
        k->rest[rest.len] = '\0';
        return k->rest[0] != '\0';
    }
    k->done[parent] = '\0';
    directory_use(w, parent ? k->done : "/");
    if (target[0] == '/')
        k->done[0] = '\0';
    return ++k->links <= LINKS && walk_prepend(k, (struct sv){target, (size_t)n}, rest);
}

static void watch_way(struct file_watch *w, const char *path)
{
    struct walk k = {0};
    sv_copy(k.rest, sizeof(k.rest), sv_from(path));
    while (walk_step(w, &k))
        ;
    walk_up(&k);
    directory_use(w, k.done[0] ? k.done : "/");
}

static void watch_directories(struct file_watch *w)
{
    for (size_t i = 0; i < DIRECTORIES; i++)
        w->directories[i].used = false;
    for (size_t i = 0; i < w->file_count; i++) {
        watch_way(w, w->files[i].path);
        if (w->files[i].is_directory)
            directory_use(w, w->files[i].path);
    }
    for (size_t i = 0; i < DIRECTORIES; i++) {
        if (w->directories[i].path && !w->directories[i].used)
            directory_clear(&w->directories[i]);
    }
}

// --- Events ---

static void note_change(struct file_watch *w)
{
    uint64_t now_ns = loop_now_ns(w->loop);
    if (w->dirty_ns == 0)
        w->dirty_ns = now_ns;
    uint64_t latest_ns = w->dirty_ns + DEBOUNCE_MOST_NS;
    uint64_t due_ns = now_ns + w->debounce_ns < latest_ns ? now_ns + w->debounce_ns : latest_ns;
    loop_timer_set(w->debounce, due_ns > now_ns ? due_ns - now_ns : 0, 0);
}

// Marks what it saw, so that each change of a file that is being written moves the debounce on.
static void look(struct file_watch *w, bool racy_too)
{
    bool dirty = false;
    for (size_t i = 0; i < w->file_count; i++) {
        struct file *f = &w->files[i];
        if (!file_is_dirty(f) && !(racy_too && f->racy))
            continue;
        f->stamp = file_stamp(f->path);
        dirty = true;
    }
    if (dirty)
        note_change(w);
}

static void on_event(void *user, const char *name)
{
    (void)name;
    look(user, false);
}

static void on_poll(void *user)
{
    look(user, true);
}

static void on_debounce(void *user)
{
    struct file_watch *w = user;
    w->dirty_ns = 0;
    bool changed = false;
    for (size_t i = 0; i < w->file_count; i++) {
        changed = file_settle(&w->files[i]) || changed;
    }
    watch_directories(w);
    if (changed)
        w->changed(w->user); // last: it may free
}

// --- Outside ---

DEFINE_CLEANUP(struct file_watch *, file_watch_free);

int file_watch_new(struct loop *l, void (*changed)(void *user), void *user, struct file_watch **out)
{
    cleanup(file_watch_freep) struct file_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->loop = l;
    w->changed = changed;
    w->user = user;
    int r = loop_timer_new(l, on_debounce, w, &w->debounce);
    if (r == 0)
        r = loop_timer_new(l, on_poll, w, &w->poll);
    if (r < 0)
        return r;
    file_watch_set_timing(w, DEBOUNCE_NS, POLL_NS);
    *out = TAKE_PTR(w);
    return 0;
}

void file_watch_set_timing(struct file_watch *w, uint64_t debounce_ns, uint64_t poll_ns)
{
    w->debounce_ns = debounce_ns;
    loop_timer_every(w->poll, poll_ns);
}

// Absolute, so that a change of the working directory does not matter. NULL: no memory.
static char *make_absolute(const char *path)
{
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof(here)))
        return sv_dup(sv_from(path));
    struct buf b = BUF_INIT(2 * (size_t)PATH_MAX);
    buf_add_str(&b, here);
    buf_add_char(&b, '/');
    buf_add_str(&b, path);
    char *out = sv_dup(buf_sv(&b));
    buf_deinit(&b);
    return out;
}

static void files_free(struct file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(files[i].path);
    free(files);
}

static const struct file *file_find(const struct file_watch *w, const char *path)
{
    for (size_t i = 0; i < w->file_count; i++) {
        if (strcmp(w->files[i].path, path) == 0)
            return &w->files[i];
    }
    return NULL;
}

static bool file_start(const struct file_watch *w, const char *path, struct file *f)
{
    char *own = make_absolute(path);
    if (!own)
        return false;
    const struct file *known = file_find(w, own);
    if (known)
        *f = *known;
    f->path = own;
    if (!known)
        (void)file_settle(f);
    return true;
}

int file_watch_set(struct file_watch *w, const char *const *paths, size_t count)
{
    size_t most = count < FILE_WATCH_MAX ? count : FILE_WATCH_MAX, kept = 0;
    struct file *files = calloc(most + 1, sizeof(*files));
    if (!files)
        return -ENOMEM;
    for (size_t i = 0; i < most; i++) {
        if (!paths[i] || paths[i][0] == '\0')
            continue;
        if (!file_start(w, paths[i], &files[kept])) {
            files_free(files, kept);
            return -ENOMEM;
        }
        kept++;
    }
    files_free(w->files, w->file_count);
    w->files = files;
    w->file_count = kept;
    watch_directories(w);
    return 0;
}

void file_watch_free(struct file_watch *w)
{
    if (!w)
        return;
    loop_timer_free(w->debounce);
    loop_timer_free(w->poll);
    for (size_t i = 0; i < DIRECTORIES; i++)
        directory_clear(&w->directories[i]);
    files_free(w->files, w->file_count);
    free(w);
}
