// SPDX-License-Identifier: Apache-2.0
// Both directories are read into one array of names, sorted by pod; of a pod's directories the one
// that was made last counts. A directory is read again when its stamp has changed, or when it was
// changed so shortly before it was read that a second change could have the same time.
#include "kube/pod_logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"

#define DISTANCE_NS (1 * NS_PER_S)
#define SETTLED_NS (2 * NS_PER_S)
#define LABEL_BYTES_MOST 63 // of a namespace and a container
#define NAME_BYTES_MOST 253
#define ID_DIGITS 64
#define UID_DIGITS 32
#define UID_BYTES 36
#define FIRST_ROOM 64 // names

enum folder { PODS, CONTAINERS, FOLDERS };

struct pod_logs {
    char *path[FOLDERS];
    struct file_stamp stamp[FOLDERS];
    bool settled;
    bool there;
    uint64_t read_ns; // 0: never
};

// --- Names ---

// What Kubernetes lets names consist of; a namespace and a container have no dots.
static bool is_name(struct sv s, size_t most, bool dots)
{
    if (s.len == 0 || s.len > most)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool inside = i > 0 && i + 1 < s.len;
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              (inside && (c == '-' || (dots && c == '.')))))
            return false;
    }
    return true;
}

static bool is_hex(struct sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (num_hex_digit(s.ptr[i]) < 0)
            return false;
    return true;
}

// "8-4-4-4-12", or the 32 digits of a static pod.
static bool is_uid(struct sv s)
{
    if (s.len == UID_DIGITS)
        return is_hex(s);
    if (s.len != UID_BYTES)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s.ptr[i] != '-' : num_hex_digit(s.ptr[i]) < 0)
            return false;
    }
    return true;
}

bool pod_logs_parse_directory(struct sv name, struct pod_record *out)
{
    struct pod_record r = {0};
    if (!sv_next(&name, '_', &r.namespace_name) || !sv_next(&name, '_', &r.name))
        return false;
    r.uid = name;
    if (!is_name(r.namespace_name, LABEL_BYTES_MOST, false) ||
        !is_name(r.name, NAME_BYTES_MOST, true) || !is_uid(r.uid))
        return false;
    *out = r;
    return true;
}

bool pod_logs_parse_link(struct sv name, struct pod_record *out,
                         struct pod_record_container *container)
{
    static const struct sv suffix = {".log", sizeof(".log") - 1};
    struct pod_record r = {0};
    if (!sv_ends_with(name, suffix))
        return false;
    name.len -= suffix.len;
    if (!sv_next(&name, '_', &r.name) || !sv_next(&name, '_', &r.namespace_name))
        return false;
    if (name.len < ID_DIGITS + 2 || name.ptr[name.len - ID_DIGITS - 1] != '-')
        return false;
    struct sv id = sv_sub(name, name.len - ID_DIGITS, ID_DIGITS);
    struct sv label = sv_sub(name, 0, name.len - ID_DIGITS - 1);
    if (!is_name(r.namespace_name, LABEL_BYTES_MOST, false) ||
        !is_name(r.name, NAME_BYTES_MOST, true) || !is_name(label, LABEL_BYTES_MOST, false) ||
        !is_hex(id))
        return false;
    *out = r;
    *container = (struct pod_record_container){.name = label, .id = id};
    return true;
}

// --- Reading ---

struct names {
    struct arena arena;
    struct name {
        struct pod_record pod;                 // uid: of a directory
        struct pod_record_container container; // of a link
    } * list;
    size_t count, room;
    int error;
};

// A list for the most there can be would stay resident: memory of this size is kept by the
// allocator once it was given back.
static int make_room(struct names *n)
{
    if (n->count < n->room)
        return 0;
    size_t room = n->room ? 2 * n->room : FIRST_ROOM;
    struct name *more = reallocarray(n->list, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    n->list = more;
    n->room = room;
    return 0;
}

static void add_name(struct names *n, enum folder folder, const char *file)
{
    struct name found = {0};
    struct sv text = sv_from(file);
    bool is_one = folder == PODS ? pod_logs_parse_directory(text, &found.pod)
                                 : pod_logs_parse_link(text, &found.pod, &found.container);
    if (!is_one)
        return;
    n->error = make_room(n);
    if (n->error)
        return;
    const char *copy = arena_dup(&n->arena, text);
    if (!copy) {
        n->error = n->arena.error;
        return;
    }
    text.ptr = copy;
    (void)!(folder == PODS ? pod_logs_parse_directory(text, &found.pod)
                           : pod_logs_parse_link(text, &found.pod, &found.container));
    n->list[n->count++] = found;
}

// False: it cannot be opened.
static bool read_folder(struct names *n, enum folder folder, const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return false;
    size_t seen = 0;
    for (const struct dirent *e = readdir(d); e && !n->error; e = readdir(d)) {
        if (n->count == LIMIT_POD_LOGS_ENTRIES || ++seen > 4 * LIMIT_POD_LOGS_ENTRIES)
            break;
        add_name(n, folder, e->d_name);
    }
    (void)closedir(d);
    return true;
}

static int compare_pods(const struct name *a, const struct name *b)
{
    int order = sv_compare(a->pod.namespace_name, b->pod.namespace_name);
    return order ? order : sv_compare(a->pod.name, b->pod.name);
}

// By pod, its directories before its links.
static int compare_names(const void *x, const void *y)
{
    const struct name *a = x, *b = y;
    int order = compare_pods(a, b);
    if (order == 0)
        order = (b->pod.uid.len > 0) - (a->pod.uid.len > 0);
    return order ? order : sv_compare(a->pod.uid, b->pod.uid);
}

// When a pod's directory was made; without that, changed. Both 0 when it is gone.
static struct statx_timestamp made_at(const struct pod_logs *p, const struct pod_record *pod)
{
    struct statx st;
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%.*s_%.*s_%.*s", p->path[PODS],
                   SV_FMT(pod->namespace_name), SV_FMT(pod->name), SV_FMT(pod->uid));
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MTIME | STATX_BTIME, &st) < 0)
        return (struct statx_timestamp){0};
    return st.stx_mask & STATX_BTIME ? st.stx_btime : st.stx_mtime;
}

static bool is_later(struct statx_timestamp a, struct statx_timestamp b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// Of the directories at the start of a pod's names the newest.
static struct sv newest_uid(const struct pod_logs *p, const struct name *list, size_t count)
{
    if (count < 2)
        return count ? list[0].pod.uid : (struct sv){0};
    size_t best = 0;
    struct statx_timestamp best_time = made_at(p, &list[0].pod);
    for (size_t i = 1; i < count; i++) {
        struct statx_timestamp time = made_at(p, &list[i].pod);
        if (!is_later(time, best_time))
            continue;
        best = i;
        best_time = time;
    }
    return list[best].pod.uid;
}

// 0; -ENOMEM, also when the target says so.
static int tell_pod(const struct pod_logs *p, struct names *n, size_t from, size_t to,
                    const struct pod_logs_target *target)
{
    struct pod_record pod = n->list[from].pod;
    size_t directories = 0;
    while (from + directories < to && n->list[from + directories].pod.uid.len)
        directories++;
    pod.uid = newest_uid(p, &n->list[from], directories);
    if (pod.uid.len == UID_DIGITS)
        pod.config_hash = pod.uid;
    size_t links = to - from - directories;
    if (links > LIMIT_POD_RECORD_CONTAINERS)
        links = LIMIT_POD_RECORD_CONTAINERS;
    if (links) {
        pod.containers = arena_alloc(&n->arena, links * sizeof(*pod.containers));
        if (!pod.containers)
            return n->arena.error;
    }
    for (; pod.container_count < links; pod.container_count++)
        pod.containers[pod.container_count] =
            n->list[from + directories + pod.container_count].container;
    return directories ? target->pod(target->user, &pod) : 0;
}

static int tell(const struct pod_logs *p, struct names *n, const struct pod_logs_target *target)
{
    if (n->count > 0)
        qsort(n->list, n->count, sizeof(*n->list), compare_names);
    target->begin(target->user);
    size_t to;
    for (size_t from = 0; from < n->count; from = to) {
        for (to = from + 1; to < n->count && compare_pods(&n->list[from], &n->list[to]) == 0;)
            to++;
        int r = tell_pod(p, n, from, to, target);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_all(struct pod_logs *p, const struct pod_logs_target *target)
{
    struct names n = {.arena = ARENA_INIT(LIMIT_POD_LOGS_BYTES)};
    p->there = read_folder(&n, PODS, p->path[PODS]);
    if (p->there)
        (void)read_folder(&n, CONTAINERS, p->path[CONTAINERS]);
    int r = n.error == -EFBIG ? 0 : n.error;
    if (r == 0)
        r = tell(p, &n, target);
    arena_deinit(&n.arena);
    free(n.list);
    return r;
}

static bool is_settled(const struct file_stamp *s)
{
    uint64_t then = clock_timespec_ns(s->modified), now = clock_wall_ns();
    return !s->there || then > now + SETTLED_NS || now > then + SETTLED_NS;
}

// Looks at both directories; false: nothing has changed.
static bool has_changed(struct pod_logs *p)
{
    bool changed = !p->settled;
    p->settled = true;
    for (int i = 0; i < FOLDERS; i++) {
        struct file_stamp now = file_stamp(p->path[i]);
        changed = changed || !file_stamp_equals(&now, &p->stamp[i]);
        p->stamp[i] = now;
        p->settled = p->settled && is_settled(&now);
    }
    return changed;
}

bool pod_logs_refresh(struct pod_logs *p, uint64_t now_ns, const struct pod_logs_target *target)
{
    if (p->read_ns > 0 && now_ns - p->read_ns < DISTANCE_NS)
        return false;
    p->read_ns = now_ns;
    if (!has_changed(p))
        return false;
    if (read_all(p, target) == 0)
        return true;
    p->settled = false; // again next time
    return false;
}

bool pod_logs_is_there(const struct pod_logs *p)
{
    return p->there;
}

int pod_logs_new(const char *log_path, struct pod_logs **out)
{
    static const char *const folders[FOLDERS] = {"pods", "containers"};
    struct pod_logs *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    for (int i = 0; i < FOLDERS; i++) {
        size_t bytes = strlen(log_path) + strlen(folders[i]) + 2;
        p->path[i] = malloc(bytes);
        if (!p->path[i]) {
            pod_logs_free(p);
            return -ENOMEM;
        }
        (void)snprintf(p->path[i], bytes, "%s/%s", log_path, folders[i]);
    }
    *out = p;
    return 0;
}

void pod_logs_free(struct pod_logs *p)
{
    if (!p)
        return;
    for (int i = 0; i < FOLDERS; i++)
        free(p->path[i]);
    free(p);
}
