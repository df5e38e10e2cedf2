// SPDX-License-Identifier: Apache-2.0
// How it works: a hash table by pid, open addressing. A pid asked for is looked at with one stat of
// its directory: procfs makes another inode for another process of the same number, so while inode
// and time are as they were the process is the one that was read. Reading is start time, cgroup,
// start time again: a process that took the number meanwhile shows, and all is read anew.
//
// A zombie may have left its cgroup already: what was known of it stays.
// proc(5), pid_namespaces(7), cgroup_namespaces(7).
#include "kube/process_map.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"

#define REREAD_NS (60 * NS_PER_S)      // processes can be moved
#define REREAD_HOST_NS (10 * NS_PER_S) // into a pod's group, soon after their start
#define LINGER_NS (30 * NS_PER_S)
#define READ_TRIES 3
#define FIRST_SLOTS 64

// Inodes of the namespaces that a machine starts with: PROC_PID_INIT_INO, PROC_CGROUP_INIT_INO of
// the kernel's include/linux/proc_ns.h.
#define INITIAL_PID_NAMESPACE "pid:[4026531836]"
#define INITIAL_CGROUP_NAMESPACE "cgroup:[4026531835]"

struct entry {
    struct process_identity identity;
    uint32_t pid;
    bool used;
    bool ended;
    ino_t inode;
    struct timespec changed;
    uint64_t read_ns, seen_ns, ended_ns;
};

struct process_map {
    int proc; // the directory; -1: can't be opened
    struct entry *slots;
    size_t slot_count; // power of two, or 0
    size_t count;
    enum process_view view;
    struct buf text;     // of the file last read
    uint32_t own_pid;    // in that procfs; 0 unknown
    struct buf own_text; // our own cgroup file
    char own_uid[POD_UID_BYTES];
    bool own_namespace; // our cgroup namespace is not the machine's, "/" is our own group
    struct process_map_stats stats;
};

// --- The table ---

static size_t home_of(const struct process_map *m, uint32_t pid)
{
    return (size_t)(pid * UINT32_C(2654435761)) & (m->slot_count - 1);
}

static struct entry *find_entry(const struct process_map *m, uint32_t pid)
{
    if (m->slot_count == 0)
        return NULL;
    size_t at = home_of(m, pid);
    while (m->slots[at].used && m->slots[at].pid != pid)
        at = (at + 1) & (m->slot_count - 1);
    return m->slots[at].used ? &m->slots[at] : NULL;
}

// There is a free slot, always.
static struct entry *place_entry(struct process_map *m, uint32_t pid)
{
    size_t at = home_of(m, pid);
    while (m->slots[at].used)
        at = (at + 1) & (m->slot_count - 1);
    m->slots[at].used = true;
    m->slots[at].pid = pid;
    return &m->slots[at];
}

// What stands behind the hole and would not be found any more moves up.
static void remove_entry(struct process_map *m, struct entry *e)
{
    size_t mask = m->slot_count - 1, hole = (size_t)(e - m->slots);
    for (size_t at = (hole + 1) & mask; m->slots[at].used; at = (at + 1) & mask) {
        size_t home = home_of(m, m->slots[at].pid);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        m->slots[hole] = m->slots[at];
        hole = at;
    }
    m->slots[hole] = (struct entry){0};
    m->count--;
}

static int grow(struct process_map *m)
{
    size_t more = m->slot_count ? m->slot_count * 2 : FIRST_SLOTS;
    struct entry *old = m->slots;
    size_t old_count = m->slot_count;
    struct entry *slots = calloc(more, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    m->slots = slots;
    m->slot_count = more;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].used)
            *place_entry(m, old[i].pid) = old[i];
    free(old);
    return 0;
}

static void evict_longest_unseen(struct process_map *m)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < m->slot_count; i++) {
        struct entry *e = &m->slots[i];
        if (e->used && (!oldest || e->seen_ns < oldest->seen_ns))
            oldest = e;
    }
    assert(oldest);
    remove_entry(m, oldest);
}

// NULL: no memory.
static struct entry *add_entry(struct process_map *m, uint32_t pid)
{
    if (m->count >= LIMIT_PROCESS_MAP)
        evict_longest_unseen(m);
    if ((m->count + 1) * 4 > m->slot_count * 3 && grow(m) < 0)
        return NULL;
    m->count++;
    return place_entry(m, pid);
}

// --- procfs ---

#define PATH_BYTES 32

static int read_proc(struct process_map *m, const char *name, struct buf *out)
{
    buf_reset(out);
    return m->proc < 0 ? -ENOENT : file_read_at(m->proc, name, out, NULL);
}

static int read_of_pid(struct process_map *m, uint32_t pid, const char *file)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%u/%s", pid, file);
    return read_proc(m, path, &m->text);
}

struct stat_line {
    uint32_t parent;
    uint64_t start_ticks;
    char state;
    char name[16];
};

// The name stands in parentheses and may hold anything, so fields are counted from the last ')':
// state is the third of the line, the parent the fourth, the start time the 22nd.
static bool parse_stat(struct sv line, struct stat_line *out)
{
    size_t open = sv_find_char(line, '('), close = line.len;
    while (close > 0 && line.ptr[close - 1] != ')')
        close--;
    if (open == (size_t)-1 || close <= open + 1)
        return false;
    sv_copy(out->name, sizeof(out->name), sv_sub(line, open + 1, close - open - 2));
    struct sv rest = sv_sub(line, close + 1, line.len), field;
    uint64_t parent = 0, start = 0;
    bool good = true;
    for (unsigned n = 3; n <= 22 && good; n++) {
        good = sv_next(&rest, ' ', &field) && field.len > 0;
        if (n == 3 && good)
            out->state = field.ptr[0];
        else if (n == 4)
            good = good && num_parse_u64(field, 0, UINT32_MAX, &parent) == 0;
        else if (n == 22)
            good = good && num_parse_u64(sv_trim(field, "\n"), 0, UINT64_MAX, &start) == 0;
    }
    out->parent = (uint32_t)parent;
    out->start_ticks = start;
    return good;
}

static int read_stat(struct process_map *m, uint32_t pid, struct stat_line *out)
{
    int r = read_of_pid(m, pid, "stat");
    return r < 0 ? r : parse_stat(buf_sv(&m->text), out) ? 0 : -EACCES;
}

static bool is_own(const struct process_map *m, uint32_t pid, uint32_t parent,
                   const struct process_cgroup *group)
{
    if (m->own_pid && (pid == m->own_pid || parent == m->own_pid))
        return true;
    if (group->own_pod || (m->own_uid[0] && strcmp(group->pod_uid, m->own_uid) == 0))
        return true;
    return m->own_namespace && m->own_text.len > 0 &&
           sv_equals(buf_sv(&m->text), buf_sv(&m->own_text));
}

// 0; -EAGAIN: the number went to another process meanwhile; -ESRCH, -ENOENT: gone; others: can't be
// read. A zombie without a group is gone, too.
static int read_once(struct process_map *m, uint32_t pid, struct process_identity *out)
{
    struct stat_line before = {0}, after = {0};
    struct process_cgroup group;
    int r = read_stat(m, pid, &before);
    if (r == 0)
        r = read_of_pid(m, pid, "cgroup");
    if (r < 0)
        return r;
    bool pod = process_cgroup_parse(buf_sv(&m->text), &group);
    bool own = is_own(m, pid, before.parent, &group);
    r = read_stat(m, pid, &after);
    if (r < 0)
        return r;
    if (before.start_ticks != after.start_ticks)
        return -EAGAIN;
    if (!pod && !own && (after.state == 'Z' || after.state == 'X'))
        return -ESRCH;
    *out = (struct process_identity){
        .kind = pod ? PROCESS_POD : PROCESS_HOST,
        .start_ticks = after.start_ticks,
        .own_pod = own,
    };
    memcpy(out->pod_uid, group.pod_uid, sizeof(out->pod_uid));
    memcpy(out->container_id, group.container_id, sizeof(out->container_id));
    memcpy(out->name, after.name, sizeof(out->name));
    return 0;
}

static int read_process(struct process_map *m, uint32_t pid, struct process_identity *out)
{
    int r = -EAGAIN;
    for (unsigned i = 0; i < READ_TRIES && r == -EAGAIN; i++)
        r = read_once(m, pid, out);
    m->stats.reads++;
    return r == -EAGAIN || r == -ENOENT ? -ESRCH : r;
}

// 0, -ESRCH, -EACCES (mounted so that others' processes are not seen: then not even the first is).
static int look(const struct process_map *m, uint32_t pid, struct stat *st)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%u", pid);
    if (m->proc < 0)
        return -EACCES;
    if (fstatat(m->proc, path, st, 0) == 0)
        return 0;
    if (errno != ENOENT && errno != ESRCH)
        return -EACCES;
    return fstatat(m->proc, "1", st, 0) == 0 ? -ESRCH : -EACCES;
}

// --- What is known ---

static bool is_as_read(const struct entry *e, const struct stat *st)
{
    return !e->ended && e->inode == st->st_ino && e->changed.tv_sec == st->st_mtim.tv_sec &&
           e->changed.tv_nsec == st->st_mtim.tv_nsec;
}

static bool tell_gone(struct process_map *m, struct entry *e, uint64_t now_ns,
                      struct process_identity *out)
{
    m->stats.gone++;
    if (e && !e->ended) {
        e->ended = true;
        e->ended_ns = now_ns;
    }
    if (e && now_ns - e->ended_ns > LINGER_NS) {
        remove_entry(m, e);
        e = NULL;
    }
    *out = e ? e->identity : (struct process_identity){.kind = PROCESS_GONE};
    return true;
}

static bool keep(struct process_map *m, struct entry *e, uint32_t pid, const struct stat *st,
                 uint64_t now_ns, const struct process_identity *fresh,
                 struct process_identity *out)
{
    if (!e)
        e = add_entry(m, pid);
    if (!e)
        return false;
    e->identity = *fresh;
    e->ended = false;
    e->inode = st->st_ino;
    e->changed = st->st_mtim;
    e->read_ns = e->seen_ns = now_ns;
    *out = e->identity;
    return true;
}

static bool read_anew(struct process_map *m, struct entry *e, uint32_t pid, const struct stat *st,
                      uint64_t now_ns, struct process_identity *out)
{
    struct process_identity fresh = {.kind = PROCESS_UNREADABLE};
    int r = read_process(m, pid, &fresh);
    bool same = e && is_as_read(e, st);
    if (r == -ENOMEM)
        return false;
    if (r == -ESRCH && same)
        fresh = e->identity; // a zombie
    else if (r == -ESRCH)
        return tell_gone(m, e, now_ns, out);
    else if (r < 0)
        m->stats.unreadable++;
    if (r < 0 && same && e->identity.kind != PROCESS_UNREADABLE)
        fresh = e->identity;
    return keep(m, e, pid, st, now_ns, &fresh, out);
}

bool process_map_find(struct process_map *m, uint32_t pid, uint64_t now_ns,
                      struct process_identity *out)
{
    struct stat st;
    struct entry *e = find_entry(m, pid);
    *out = (struct process_identity){.kind = PROCESS_UNREADABLE};
    if (m->view == PROCESS_VIEW_PRIVATE) {
        m->stats.unreadable++;
        return true;
    }
    if (e && e->seen_ns == now_ns) {
        *out = e->identity;
        return true;
    }
    if (e)
        e->seen_ns = now_ns;
    int r = look(m, pid, &st);
    if (r == -ESRCH)
        return tell_gone(m, e, now_ns, out);
    if (r < 0) {
        m->stats.unreadable++;
        return true;
    }
    uint64_t period_ns = e && e->identity.kind == PROCESS_HOST ? REREAD_HOST_NS : REREAD_NS;
    if (!e || !is_as_read(e, &st) || now_ns - e->read_ns >= period_ns)
        return read_anew(m, e, pid, &st, now_ns, out);
    *out = e->identity;
    return true;
}

// A pass may be given the time at which it began, before its last look at a process.
static bool is_past(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns && now_ns - then_ns > LINGER_NS;
}

void process_map_sweep(struct process_map *m, uint64_t now_ns)
{
    for (size_t i = 0; i < m->slot_count;) {
        struct entry *e = &m->slots[i];
        bool over =
            e->used && (is_past(e->seen_ns, now_ns) || (e->ended && is_past(e->ended_ns, now_ns)));
        if (over)
            remove_entry(m, e); // another may stand here now
        else
            i++;
    }
}

// --- Whose pids they are ---

static bool link_is(const struct process_map *m, const char *name, const char *text)
{
    char target[64];
    ssize_t n = m->proc < 0 ? -1 : readlinkat(m->proc, name, target, sizeof(target));
    return n > 0 && sv_equals((struct sv){target, (size_t)n}, sv_from(text));
}

static void learn_self(struct process_map *m)
{
    char target[16];
    uint64_t pid;
    struct process_cgroup group;
    ssize_t n = m->proc < 0 ? -1 : readlinkat(m->proc, "self", target, sizeof(target));
    if (n > 0 && num_parse_u64((struct sv){target, (size_t)n}, 1, UINT32_MAX, &pid) == 0)
        m->own_pid = (uint32_t)pid;
    if (read_proc(m, "self/cgroup", &m->own_text) < 0)
        return;
    if (process_cgroup_parse(buf_sv(&m->own_text), &group))
        memcpy(m->own_uid, group.pod_uid, sizeof(m->own_uid));
    m->own_namespace = !link_is(m, "self/ns/cgroup", INITIAL_CGROUP_NAMESPACE);
}

// Where the first process is one of ours there is nobody else to be seen; where it is not, this is
// a node within a machine.
static enum process_view judge_view(struct process_map *m)
{
    struct process_cgroup group;
    if (link_is(m, "self/ns/pid", INITIAL_PID_NAMESPACE))
        return PROCESS_VIEW_HOST;
    if (read_proc(m, "2/comm", &m->text) == 0 && sv_equals(buf_sv(&m->text), SV("kthreadd\n")))
        return PROCESS_VIEW_HOST;
    if (read_proc(m, "1/cgroup", &m->text) < 0)
        return PROCESS_VIEW_PRIVATE;
    (void)process_cgroup_parse(buf_sv(&m->text), &group);
    bool ours = is_own(m, 1, 0, &group) || sv_equals(buf_sv(&m->text), buf_sv(&m->own_text));
    return ours ? PROCESS_VIEW_PRIVATE : PROCESS_VIEW_UNKNOWN;
}

int process_map_new(const char *proc_path, struct process_map **out)
{
    struct process_map *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->text = m->own_text = BUF_INIT(LIMIT_PROC_FILE_BYTES);
    m->proc = open(proc_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    learn_self(m);
    m->view = judge_view(m);
    int error = m->text.error ? m->text.error : m->own_text.error;
    if (error == -ENOMEM) {
        process_map_free(m);
        return error;
    }
    *out = m;
    return 0;
}

void process_map_free(struct process_map *m)
{
    if (!m)
        return;
    fd_closep(&m->proc);
    buf_deinit(&m->text);
    buf_deinit(&m->own_text);
    free(m->slots);
    free(m);
}

enum process_view process_map_view(const struct process_map *m)
{
    return m->view;
}

const char *process_view_text(enum process_view v)
{
    switch (v) {
    case PROCESS_VIEW_HOST:
        return "host";
    case PROCESS_VIEW_PRIVATE:
        return "private";
    case PROCESS_VIEW_UNKNOWN:
        return "unknown";
    }
    assert(false);
    return "";
}

void process_map_get_stats(const struct process_map *m, struct process_map_stats *out)
{
    *out = m->stats;
    out->known = m->count;
}
