// SPDX-License-Identifier: Apache-2.0
#include "exporter/hpc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/num.h"

struct entry {
    uint64_t key; // GPU in the high half, instance in the low
    char **names; // owned, each NUL-terminated
    size_t count;
};

// Ascending by key.
struct hpc_jobs {
    struct entry *entries;
    size_t count;
    size_t left_out;
};

static uint64_t make_key(uint32_t gpu, uint32_t gpu_instance_id)
{
    return (uint64_t)gpu << 32 | gpu_instance_id;
}

// Where the key stands or would stand.
static size_t find_place(const struct hpc_jobs *jobs, uint64_t key)
{
    size_t low = 0, high = jobs->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (jobs->entries[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const char *const *hpc_jobs_find(const struct hpc_jobs *jobs, uint32_t gpu,
                                 uint32_t gpu_instance_id, size_t *out_count)
{
    uint64_t key = make_key(gpu, gpu_instance_id);
    size_t place = jobs ? find_place(jobs, key) : 0;
    *out_count = 0;
    if (!jobs || place == jobs->count || jobs->entries[place].key != key ||
        !jobs->entries[place].count)
        return NULL;
    *out_count = jobs->entries[place].count;
    return (const char *const *)jobs->entries[place].names;
}

// --- File names ---

static bool parse_number(struct sv s, uint32_t *out)
{
    uint64_t n;
    if (s.len > 1 && s.ptr[0] == '0')
        return false;
    if (num_parse_u64(s, 0, UINT32_MAX - 1, &n) < 0)
        return false;
    *out = (uint32_t)n;
    return true;
}

bool hpc_parse_name(struct sv name, uint32_t *out_gpu, uint32_t *out_gpu_instance_id)
{
    uint32_t gpu, instance = HPC_NO_INSTANCE;
    size_t dot = sv_find_char(name, '.');
    struct sv head = sv_sub(name, 0, dot);
    if (!parse_number(head, &gpu))
        return false;
    if (dot != (size_t)-1) {
        struct sv tail = sv_sub(name, dot + 1, name.len);
        if (!parse_number(tail, &instance))
            return false;
    }
    *out_gpu = gpu;
    *out_gpu_instance_id = instance;
    return true;
}

// --- Jobs ---

int hpc_jobs_new(struct hpc_jobs **out)
{
    struct hpc_jobs *jobs = calloc(1, sizeof(*jobs));
    if (!jobs)
        return -ENOMEM;
    *out = jobs;
    return 0;
}

static void entry_deinit(struct entry *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->names[i]);
    free(e->names);
}

void hpc_jobs_free(struct hpc_jobs *jobs)
{
    if (!jobs)
        return;
    for (size_t i = 0; i < jobs->count; i++)
        entry_deinit(&jobs->entries[i]);
    free(jobs->entries);
    free(jobs);
}

size_t hpc_jobs_left_out(const struct hpc_jobs *jobs)
{
    return jobs->left_out;
}

static bool entries_are_equal(const struct entry *a, const struct entry *b)
{
    if (a->key != b->key || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    }
    return true;
}

bool hpc_jobs_equal(const struct hpc_jobs *a, const struct hpc_jobs *b)
{
    if (a->count != b->count || a->left_out != b->left_out)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!entries_are_equal(&a->entries[i], &b->entries[i]))
            return false;
    }
    return true;
}

// The entry's array has room for LIMIT_HPC_JOBS names.
static int add_name(struct entry *e, struct sv line)
{
    char *name = sv_dup(line);
    if (!name)
        return -ENOMEM;
    for (size_t i = 0; i < line.len; i++) {
        if (name[i] == '\0')
            name[i] = '?';
    }
    e->names[e->count++] = name;
    return 0;
}

static int add_line(struct entry *e, struct map *seen, struct sv line, size_t *left_out)
{
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len > LIMIT_HPC_LINE_BYTES) {
        (*left_out)++;
        return 0;
    }
    if (map_find(seen, line))
        return 0;
    if (e->count == LIMIT_HPC_JOBS) {
        (*left_out)++;
        return 0;
    }
    int r = map_put(seen, line, e, NULL);
    return r < 0 ? r : add_name(e, line);
}

static int parse(struct entry *e, struct sv content, size_t *left_out)
{
    struct map seen = MAP_INIT(LIMIT_HPC_JOBS);
    struct sv line;
    int r = 0;
    while (r == 0 && sv_next(&content, '\n', &line))
        r = add_line(e, &seen, line, left_out);
    map_deinit(&seen);
    return r;
}

static int insert(struct hpc_jobs *jobs, size_t place, const struct entry *e)
{
    struct entry *entries = reallocarray(jobs->entries, jobs->count + 1, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    memmove(&entries[place + 1], &entries[place], (jobs->count - place) * sizeof(*entries));
    entries[place] = *e;
    jobs->entries = entries;
    jobs->count++;
    return 0;
}

int hpc_jobs_add(struct hpc_jobs *jobs, uint32_t gpu, uint32_t gpu_instance_id, struct sv content)
{
    struct entry e = {.key = make_key(gpu, gpu_instance_id)};
    size_t place = find_place(jobs, e.key);
    size_t left_out = 0;
    if (place < jobs->count && jobs->entries[place].key == e.key)
        return -EEXIST;
    e.names = calloc(LIMIT_HPC_JOBS, sizeof(*e.names));
    if (!e.names)
        return -ENOMEM;
    int r = parse(&e, content, &left_out);
    if (r == 0) {
        char **fitting = reallocarray(e.names, e.count ? e.count : 1, sizeof(*e.names));
        e.names = fitting ? fitting : e.names;
        r = insert(jobs, place, &e);
    }
    if (r < 0) {
        entry_deinit(&e);
        return r;
    }
    jobs->left_out += left_out;
    return 0;
}
