// SPDX-License-Identifier: Apache-2.0
// Utilisation per process: a sample of each process that was busy in a window, for every window
// since the caller's last one that the ring still has. A process whose percents are all 0, cut, has
// none.
#include "double.h"

#include <string.h>

#define RING_NS INT64_C(5000000000)
#define RING_WINDOWS 120 // whichever is less
#define MPS_SERVER "nvidia-cuda-mps-server"

enum engine {
    ENGINE_SM,
    ENGINE_MEMORY,
    ENGINE_ENCODER,
    ENGINE_DECODER,
    ENGINE_JPEG,
    ENGINE_OFA,
    ENGINE_COUNT,
};
static const enum sim_field engine_fields[ENGINE_COUNT] = {
    SIM_GPU_UTIL, SIM_MEM_UTIL, SIM_ENC_UTIL, SIM_DEC_UTIL, SIM_JPG_UTIL, SIM_OFA_UTIL};

struct use {
    unsigned int pid;
    unsigned long long stamp; // of the window's end
    unsigned int percent[ENGINE_COUNT];
};

// Where samples go: one of both forms, or nowhere to be counted.
struct sink {
    nvmlProcessUtilizationSample_t *rows;
    nvmlProcessUtilizationInfo_v1_t *infos;
    unsigned int room, count; // count: all there are
};

static bool mps_hides(const struct call *c)
{
    return sim_truth_or_zero(c->node, SIM_NODE, SIM_MPS_HIDDEN, c->t) != 0;
}

bool double_is_hidden(const struct call *c, const struct sim_process *p)
{
    return ((p->type & SIM_MPS) != 0 && mps_hides(c)) ||
           sim_truth_or_zero(c->node, SIM_NODE, SIM_PIDS_HIDDEN, c->t) != 0;
}

bool double_is_mps_server(const struct call *c, uint32_t process)
{
    const char *name = sim_string(c->node, c->node->processes[process].name);
    return strcmp(name, MPS_SERVER) == 0 && mps_hides(c);
}

// What a process did, a server with what its hidden clients did.
static sim_wide load_of(const struct call *c, uint32_t process, int64_t from, int64_t to)
{
    const struct sim_node *n = c->node;
    sim_wide load = sim_process_load_integral(n, process, from, to);
    if (!double_is_mps_server(c, process))
        return load;
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE; i = n->processes[i].next_on_gpu) {
        if (double_is_hidden(c, &n->processes[i]))
            load += sim_process_load_integral(n, i, from, to);
    }
    return load;
}

static bool use_of(const struct call *c, uint32_t process, int64_t from, int64_t to,
                   struct use *out)
{
    const struct sim_process *p = &c->node->processes[process];
    if (p->start_ns >= to || atomic_load(&p->end_ns) <= from || double_is_hidden(c, p))
        return false;
    sim_wide load = load_of(c, process, from, to);
    unsigned int any = 0;
    *out = (struct use){.pid = p->pid, .stamp = (unsigned long long)sim_wall_us(c->node, to)};
    for (unsigned i = 0; i < ENGINE_COUNT && load > 0; i++) {
        out->percent[i] =
            (unsigned int)sim_load_percent(c->node, c->gpu, engine_fields[i], load, from, to);
        any |= out->percent[i];
    }
    return any != 0;
}

static void sink_add(struct sink *s, const struct use *u)
{
    unsigned int at = s->count++;
    if (at >= s->room)
        return;
    if (s->rows)
        s->rows[at] = (nvmlProcessUtilizationSample_t){.pid = u->pid,
                                                       .timeStamp = u->stamp,
                                                       .smUtil = u->percent[ENGINE_SM],
                                                       .memUtil = u->percent[ENGINE_MEMORY],
                                                       .encUtil = u->percent[ENGINE_ENCODER],
                                                       .decUtil = u->percent[ENGINE_DECODER]};
    if (s->infos)
        s->infos[at] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = u->stamp,
                                                         .pid = u->pid,
                                                         .smUtil = u->percent[ENGINE_SM],
                                                         .memUtil = u->percent[ENGINE_MEMORY],
                                                         .encUtil = u->percent[ENGINE_ENCODER],
                                                         .decUtil = u->percent[ENGINE_DECODER],
                                                         .jpgUtil = u->percent[ENGINE_JPEG],
                                                         .ofaUtil = u->percent[ENGINE_OFA]};
}

static void add_window(const struct call *c, int64_t from, int64_t to, struct sink *s)
{
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE;
         i = c->node->processes[i].next_on_gpu) {
        struct use u;
        if (use_of(c, i, from, to, &u))
            sink_add(s, &u);
    }
}

// Oldest first. NOT_FOUND when nobody was busy since; INSUFFICIENT_SIZE with the size.
static nvmlReturn_t read_ring(const struct call *c, unsigned long long last_seen, struct sink *s)
{
    int64_t told, window = call_gpu(c)->window_ns;
    if (call_is_mig(c) || call_mig_enabled(c))
        return NOT_SUPPORTED;
    int code = sim_truth(c->node, SIM_NODE, SIM_PROCESS_UTILIZATION, c->t, &told);
    if (code != OK)
        return code;
    int64_t lag = sim_truth_or_zero(c->node, SIM_NODE, SIM_PROCESS_LAG, c->t) * 1000000;
    int64_t newest = sim_window_at(c->t - lag, window), kept = RING_NS / window;
    kept = kept < 1 ? 1 : kept > RING_WINDOWS ? RING_WINDOWS : kept;
    for (int64_t k = newest - kept + 1; k <= newest && told != 0; k++) {
        if ((unsigned long long)sim_wall_us(c->node, k * window) > last_seen)
            add_window(c, (k - 1) * window, k * window, s);
    }
    if (s->count == 0)
        return NOT_FOUND;
    return s->count > s->room ? INSUFFICIENT_SIZE : OK;
}

API(nvmlDeviceGetProcessUtilization, nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
    unsigned int *count, unsigned long long last_seen)
{
    CALL_DEVICE(device);
    NEED(count);
    struct sink s = {.rows = samples, .room = samples ? *count : 0};
    nvmlReturn_t code = read_ring(&c, last_seen, &s);
    if (code == OK || code == INSUFFICIENT_SIZE || code == NOT_FOUND)
        *count = s.count;
    return code;
}

API(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t device,
    nvmlProcessesUtilizationInfo_v1_t *info)
{
    CALL_DEVICE(device);
    NEED(info);
    if (info->version != VERSION_OF(nvmlProcessesUtilizationInfo_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    struct sink s = {.infos = info->procUtilArray,
                     .room = info->procUtilArray ? info->processSamplesCount : 0};
    nvmlReturn_t code = read_ring(&c, info->lastSeenTimeStamp, &s);
    if (code == OK || code == INSUFFICIENT_SIZE || code == NOT_FOUND)
        info->processSamplesCount = s.count;
    return code;
}
