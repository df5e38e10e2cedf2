// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>

#include "base/file.h"
#include "base/limits.h"

struct sim_session {
    struct sim_node *node;
    int fd;               // for the writers' lock between processes
    pthread_mutex_t lock; // and between threads
};

struct sim_session *sim_session_open(const char *path)
{
    struct sim_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->node = sim_map(path);
    s->fd = s->node ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (s->fd >= 0) {
        (void)pthread_mutex_init(&s->lock, NULL);
        return s;
    }
    int saved = errno;
    sim_unmap(s->node);
    free(s);
    errno = saved;
    return NULL;
}

void sim_session_close(struct sim_session *s)
{
    if (!s)
        return;
    (void)close(s->fd);
    (void)pthread_mutex_destroy(&s->lock);
    sim_unmap(s->node);
    free(s);
}

int sim_session_run(struct sim_session *s, const char *line, int64_t at_ns, char *out,
                    size_t out_bytes, size_t *out_needed)
{
    struct buf answer = BUF_INIT(8u << 20);
    struct error err = ERROR_INIT;
    (void)pthread_mutex_lock(&s->lock);
    while (flock(s->fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    int rc = sim_command_line(s->node, at_ns >= 0 ? at_ns : sim_now(s->node), sv_from(line),
                              &answer, &err);
    (void)flock(s->fd, LOCK_UN);
    (void)pthread_mutex_unlock(&s->lock);
    if (rc < 0) {
        buf_reset(&answer);
        buf_add_str(&answer, err.text);
    }
    sv_copy(out, out_bytes, buf_sv(&answer));
    if (out_needed)
        *out_needed = answer.len;
    buf_deinit(&answer);
    return rc;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    (void)clock_gettime(clock, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int write_node(const char *path, struct sim_node *n, struct error *err)
{
    int fd cleanup(fd_closep) = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    n->epoch_ns = clock_ns(CLOCK_MONOTONIC);
    n->wall_epoch_us = clock_ns(CLOCK_REALTIME) / 1000;
    for (size_t done = 0; done < sizeof(*n);) {
        ssize_t got = write(fd, (const char *)n + done, sizeof(*n) - done);
        if (got < 0)
            return error_set(err, -errno, "%s: %s", path, strerror(errno));
        done += (size_t)got;
    }
    return 0;
}

int sim_session_create(const char *scenario, const char *path, double rate, struct error *err)
{
    if (!(rate >= 0.001 && rate <= 100000))
        return error_set(err, -EINVAL, "the rate is a number from 0.001 to 100000");
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct sim_node *n cleanup(mem_freep) = calloc(1, sizeof(*n));
    int rc = n ? file_read(scenario, &text, err) : error_set(err, -ENOMEM, "no memory");
    if (rc == 0)
        rc = sim_compile(n, buf_sv(&text), scenario, err);
    buf_deinit(&text);
    if (rc < 0)
        return rc;
    struct sv name = sv_from(base_name(scenario));
    if (sv_ends_with(name, SV(".yaml")))
        name.len -= 5;
    sv_copy(n->scenario, sizeof(n->scenario), name);
    n->rate_ppm = (uint64_t)(rate * 1e6 + 0.5);
    return write_node(path, n, err);
}

// --- For Python ---

int sim_field_index(const char *name)
{
    enum sim_field field = sim_parse_field(sv_from(name));
    return field == SIM_FIELD_COUNT ? -1 : (int)field;
}

const char *sim_field_name(int index)
{
    return index >= 0 && index < SIM_FIELD_COUNT ? sim_field_table[index].name : NULL;
}

int64_t sim_now_ns(struct sim_session *s)
{
    return sim_now(s->node);
}

int sim_get_truth(struct sim_session *s, uint32_t gpu, int field, int64_t t, int64_t *out)
{
    return sim_truth(s->node, gpu, (enum sim_field)field, t, out);
}

int sim_get_truth_double(struct sim_session *s, uint32_t gpu, int field, int64_t t, double *out)
{
    return sim_truth_double(s->node, gpu, (enum sim_field)field, t, out);
}

double sim_get_mean(struct sim_session *s, uint32_t gpu, uint32_t gi, int field, int64_t from,
                    int64_t to)
{
    return sim_instance_mean(s->node, gpu, gi, (enum sim_field)field, from, to);
}

double sim_get_load(struct sim_session *s, uint32_t gpu, uint32_t gi, int64_t t)
{
    return (double)sim_load_ppm(s->node, gpu, gi, t) / 1e6;
}

int64_t sim_get_busy_us(struct sim_session *s, uint32_t gpu, uint32_t gi, int64_t from, int64_t to)
{
    return sim_busy_us(s->node, gpu, gi, from, to);
}

int64_t sim_get_process_busy_us(struct sim_session *s, uint32_t pid, int64_t from, int64_t to)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->node->process_count; i++) {
        if (s->node->processes[i].pid == pid)
            sum += sim_process_busy_us(s->node, i, from, to);
    }
    return sum;
}

int sim_get_memory(struct sim_session *s, uint32_t gpu, uint32_t instance, int64_t t,
                   int64_t out[4])
{
    struct sim_memory m;
    int code = instance == SIM_NONE ? sim_gpu_memory(s->node, gpu, t, &m)
                                    : sim_instance_memory(s->node, instance, t, &m);
    if (code != 0)
        return code;
    out[0] = m.total;
    out[1] = m.reserved;
    out[2] = m.used;
    out[3] = m.free;
    return 0;
}

uint32_t sim_gpu_count(struct sim_session *s)
{
    return s->node->gpu_count;
}

const char *sim_gpu_text(struct sim_session *s, uint32_t gpu, const char *what)
{
    const struct sim_gpu *g = &s->node->gpus[gpu];
    struct {
        const char *name;
        uint32_t at;
    } texts[] = {{"uuid", g->uuid},
                 {"name", g->name},
                 {"bus_id", g->bus_id},
                 {"serial", g->serial},
                 {"resource", g->resource}};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (strcmp(texts[i].name, what) == 0)
            return sim_string(s->node, texts[i].at);
    }
    return NULL;
}

uint64_t sim_get_calls(struct sim_session *s, const char *symbol)
{
    uint32_t at = sim_symbol_find(s->node, symbol);
    return at == SIM_NONE ? 0 : atomic_load(&s->node->symbols[at].calls);
}

void sim_count_call(struct sim_session *s, const char *symbol, uint64_t took_ns)
{
    uint32_t at = sim_symbol_find(s->node, symbol);
    sim_count_begin(s->node, at);
    sim_count_end(s->node, at, took_ns);
}

int sim_get_event(struct sim_session *s, uint32_t index, struct sim_event *out)
{
    if (index >= atomic_load(&s->node->event_count))
        return -1;
    *out = s->node->events[index];
    return 0;
}

int sim_get_instance(struct sim_session *s, uint32_t index, struct sim_instance *out)
{
    if (index >= atomic_load(&s->node->instance_count))
        return -1;
    *out = s->node->instances[index];
    return 0;
}

int sim_get_process(struct sim_session *s, uint32_t index, struct sim_process *out)
{
    if (index == 0)
        sim_work_reap(s->node);
    if (index >= atomic_load(&s->node->process_count))
        return -1;
    *out = s->node->processes[index];
    return 0;
}

const char *sim_get_string(struct sim_session *s, uint32_t at)
{
    return sim_string(s->node, at);
}

const char *sim_driver_version(struct sim_session *s)
{
    return s->node->driver_version;
}

const char *sim_node_name(struct sim_session *s)
{
    return s->node->name;
}

const char *sim_cgroups(struct sim_session *s)
{
    return sim_string(s->node, s->node->cgroups);
}

const char *sim_node_extra(struct sim_session *s)
{
    return sim_string(s->node, s->node->extra);
}

uint32_t sim_generation(struct sim_session *s)
{
    return atomic_load(&s->node->generation);
}

int64_t sim_wall(struct sim_session *s, int64_t t)
{
    return sim_wall_us(s->node, t);
}

uint32_t sim_gpu_number(struct sim_session *s, uint32_t gpu, const char *what)
{
    const struct sim_gpu *g = &s->node->gpus[gpu];
    return strcmp(what, "minor") == 0 ? g->minor : g->replicas;
}

int sim_uses_old_library(struct sim_session *s)
{
    return (int)s->node->old_library;
}

uint32_t sim_dcgm_library(struct sim_session *s)
{
    return s->node->dcgm.library;
}

int sim_dcgm_engine_runs(struct sim_session *s)
{
    return (int)s->node->dcgm.engine;
}
