// SPDX-License-Identifier: Apache-2.0
// How it works. A refresh lists the directory and takes each file's stamp (base/file.h). Only when
// one differs from the last time are the files read, into a new set of jobs that replaces the old
// one if it is another. A file written twice within the resolution of its timestamps could go
// unnoticed, so files changed less than SETTLED_NS ago are not taken as known and are read again at
// the next refresh.
#include "exporter/hpc.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"

#define SETTLED_NS (2 * NS_PER_S)

struct file {
    uint32_t gpu, gpu_instance_id;
    struct file_stamp stamp;
    char name[24]; // two numbers and a dot
};

struct listing {
    struct file *files; // ascending by GPU and instance; room for LIMIT_HPC_FILES
    size_t count;
    size_t left_out;
    bool settled; // equal listings mean equal content
};

struct hpc {
    char *directory;
    struct listing last;
    struct hpc_jobs *current;
    int logged_error; // of opening the directory
};

int hpc_new(const char *directory, struct hpc **out)
{
    struct hpc *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->directory = sv_dup(sv_from(directory));
    if (!h->directory) {
        free(h);
        return -ENOMEM;
    }
    *out = h;
    return 0;
}

void hpc_free(struct hpc *h)
{
    if (!h)
        return;
    hpc_jobs_free(h->current);
    free(h->last.files);
    free(h->directory);
    free(h);
}

const struct hpc_jobs *hpc_current(const struct hpc *h)
{
    return h->current;
}

// --- Listing ---

static bool is_settled(struct timespec t, uint64_t now_wall_ns)
{
    uint64_t then = clock_timespec_ns(t);
    return then > now_wall_ns + SETTLED_NS || now_wall_ns > then + SETTLED_NS;
}

static void list_file(struct listing *l, int directory, const char *name, uint64_t now_wall_ns)
{
    struct file f = {0};
    struct stat st;
    if (!hpc_parse_name(sv_from(name), &f.gpu, &f.gpu_instance_id))
        return;
    if (fstatat(directory, name, &st, 0) < 0 || !S_ISREG(st.st_mode))
        return; // gone meanwhile, or a folder of that name
    if (l->count == LIMIT_HPC_FILES) {
        l->left_out++;
        return;
    }
    f.stamp = file_stamp_of(&st);
    sv_copy(f.name, sizeof(f.name), sv_from(name));
    l->settled = l->settled && is_settled(f.stamp.modified, now_wall_ns) &&
                 is_settled(f.stamp.changed, now_wall_ns);
    l->files[l->count++] = f;
}

static int compare_files(const void *x, const void *y)
{
    const struct file *a = x;
    const struct file *b = y;
    if (a->gpu != b->gpu)
        return a->gpu < b->gpu ? -1 : 1;
    if (a->gpu_instance_id != b->gpu_instance_id)
        return a->gpu_instance_id < b->gpu_instance_id ? -1 : 1;
    return 0;
}

// 0, negative errno of the directory, -ENOMEM.
static int list_directory(DIR *d, uint64_t now_wall_ns, struct listing *out)
{
    struct listing l = {.settled = true};
    l.files = calloc(LIMIT_HPC_FILES, sizeof(*l.files));
    if (!l.files)
        return -ENOMEM;
    errno = 0;
    const struct dirent *e = readdir(d);
    for (size_t seen = 0; e; e = readdir(d)) {
        if (++seen > LIMIT_HPC_DIRECTORY_ENTRIES) {
            l.left_out++;
            break;
        }
        list_file(&l, dirfd(d), e->d_name, now_wall_ns);
        errno = 0;
    }
    if (!e && errno) {
        free(l.files);
        return -errno;
    }
    qsort(l.files, l.count, sizeof(*l.files), compare_files);
    *out = l;
    return 0;
}

static bool listings_are_equal(const struct listing *a, const struct listing *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct file *x = &a->files[i];
        const struct file *y = &b->files[i];
        if (compare_files(x, y) != 0 || !file_stamp_equals(&x->stamp, &y->stamp))
            return false;
    }
    return true;
}

// --- Reading ---

// A file that can't be read is as if it were not there. 0, -ENOMEM.
static int add_file(struct hpc_jobs *jobs, int directory, const struct file *f)
{
    struct buf content = BUF_INIT(LIMIT_HPC_FILE_BYTES);
    int r = file_read_at(directory, f->name, &content, NULL);
    if (r == 0)
        r = hpc_jobs_add(jobs, f->gpu, f->gpu_instance_id, buf_sv(&content));
    buf_deinit(&content);
    if (r == 0 || r == -ENOMEM)
        return r;
    if (r != -ENOENT)
        log_warn("HPC job mapping file cannot be read", LOG_STR("file", f->name), LOG_ERRNO(r),
                 LOG_LIMIT(f->name));
    return 0;
}

static int read_files(int directory, const struct listing *l, struct hpc_jobs **out)
{
    struct hpc_jobs *jobs;
    int r = hpc_jobs_new(&jobs);
    if (r < 0)
        return r;
    for (size_t i = 0; i < l->count && r == 0; i++)
        r = add_file(jobs, directory, &l->files[i]);
    if (r < 0) {
        hpc_jobs_free(jobs);
        return r;
    }
    if (l->left_out + hpc_jobs_left_out(jobs) > 0)
        log_warn("HPC job mapping is larger than is read", LOG_U64("files_left_out", l->left_out),
                 LOG_U64("jobs_left_out", hpc_jobs_left_out(jobs)), LOG_LIMIT("hpc"));
    *out = jobs;
    return 0;
}

// --- Refresh ---

static bool replace(struct hpc *h, struct hpc_jobs *jobs)
{
    bool same = h->current && jobs && hpc_jobs_equal(h->current, jobs);
    if (same || (!h->current && !jobs)) {
        hpc_jobs_free(jobs);
        return false;
    }
    hpc_jobs_free(h->current);
    h->current = jobs;
    return true;
}

static bool lose_directory(struct hpc *h, int error)
{
    if (h->logged_error != error)
        log_error("HPC job mapping directory cannot be read, there is no hpc_job label",
                  LOG_STR("path", h->directory), LOG_ERRNO(error));
    h->logged_error = error;
    free(TAKE_PTR(h->last.files));
    h->last = (struct listing){0};
    return replace(h, NULL);
}

// What is listed becomes what is known.
static bool refresh_from(struct hpc *h, DIR *d, uint64_t now_wall_ns)
{
    struct listing now;
    struct hpc_jobs *jobs = NULL;
    int r = list_directory(d, now_wall_ns, &now);
    if (r < 0)
        return r == -ENOMEM ? false : lose_directory(h, r);
    h->logged_error = 0;
    if (h->current && h->last.settled && listings_are_equal(&h->last, &now)) {
        free(now.files);
        return false;
    }
    r = read_files(dirfd(d), &now, &jobs);
    if (r < 0) {
        free(now.files);
        return false; // no memory: what was known stays, the next refresh tries again
    }
    free(h->last.files);
    h->last = now;
    return replace(h, jobs);
}

bool hpc_refresh(struct hpc *h, uint64_t now_wall_ns)
{
    DIR *d = opendir(h->directory);
    if (!d)
        return errno == ENOMEM ? false : lose_directory(h, -errno);
    bool changed = refresh_from(h, d, now_wall_ns);
    closedir(d);
    return changed;
}
