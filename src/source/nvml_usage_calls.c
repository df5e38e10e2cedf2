// SPDX-License-Identifier: Apache-2.0
// How it works: one function a step. Lists are asked for with room for as many rows as they had
// before; INSUFFICIENT_SIZE tells how many there are, and more are asked for, as they may grow
// meanwhile. What is refused for good is asked again as seldom as the sampler does it.
#include "source/nvml_usage_internal.h"

#include <string.h>

#include "source/nvml_call.h"
#include "source/nvml_fields.h"
#include "source/sampler.h"

#define TRIES 3
#define FAILURES_MOST 3
#define STALE_NS (5 * NS_PER_S) // a buffer that fills no more is none
#define PROCESS_ROOM 64
#define SAMPLE_ROOM 256
#define SHARE_ROOM 256
#define ENTRIES_READ 4096 // of a call

static struct nvml_usage_device *device_of(const struct usage_pass *p, uint32_t place)
{
    return &p->u->devices[place];
}

static const struct nvml_entity *entity_of(const struct usage_pass *p, uint32_t place)
{
    return &p->d->list[place];
}

static struct nvml_usage_device *parent_of(const struct usage_pass *p, uint32_t place)
{
    return device_of(p, entity_of(p, place)->record.parent);
}

// --- which steps, and what answers mean ---

bool usage_has_step(const struct usage_pass *p, uint32_t place, enum usage_step step)
{
    const struct frame_entity *e = &entity_of(p, place)->record;
    bool instance = e->kind != FRAME_ENTITY_GPU;
    switch (step) {
    case USAGE_STEP_COMPUTE: // a GPU's list has the processes of its instances
        return true;
    case USAGE_STEP_GRAPHICS:
    case USAGE_STEP_MPS:
    case USAGE_STEP_MEMORY:
        return instance || !e->mig_enabled;
    case USAGE_STEP_ENERGY:
        return !instance;
    case USAGE_STEP_GPM:
        return instance && e->gpm;
    case USAGE_STEP_SAMPLES:
    case USAGE_STEP_SHARES:
        return !instance && !e->mig_enabled;
    case USAGE_STEP_END:
        break;
    }
    return false;
}

static void note_good(struct usage_answer *a)
{
    a->has = a->was_ok = true;
    a->failures = 0;
}

static void note_failure(struct usage_answer *a, nvmlReturn_t result, uint64_t now_ns)
{
    if (nvml_status_is_final(nvml_status_of(result))) {
        a->has = false;
        a->again_ns = now_ns + (a->was_ok ? SAMPLER_AGAIN_NS : SAMPLER_AGAIN_ALL_NS);
        return;
    }
    if (a->failures < FAILURES_MOST)
        a->failures++;
    if (a->failures == FAILURES_MOST)
        a->has = false;
}

// False: the GPU is gone.
static bool note(struct usage_answer *a, nvmlReturn_t result, uint64_t now_ns)
{
    if (result == NVML_SUCCESS)
        note_good(a);
    else
        note_failure(a, result, now_ns);
    return nvml_state_of(result) != FRAME_ENTITY_LOST && !nvml_result_is_of_library(result);
}

// --- lists ---

struct list_call {
    size_t row_bytes;
    uint32_t room; // rows asked for at first
    uint32_t most; // rows that are read at all
    nvmlReturn_t (*call)(const struct usage_pass *p, uint32_t place, struct list_call *c,
                         unsigned int *count);
    uint64_t last_us; // of a buffer
    int value_type;   // of a buffer, out
    uint32_t kinds;   // of processes
};

// NVML_SUCCESS: u->rows holds *out_count rows, 0 also where the driver finds nothing.
static nvmlReturn_t read_list(const struct usage_pass *p, uint32_t place, struct list_call *c,
                              uint32_t *out_count)
{
    struct buf *rows = &p->u->rows;
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    size_t had = rows->cap / c->row_bytes;
    uint32_t room = had > c->room ? (uint32_t)(had < c->most ? had : c->most) : c->room;
    for (unsigned tries = 0; tries < TRIES && result == NVML_ERROR_INSUFFICIENT_SIZE; tries++) {
        buf_reset(rows);
        if (buf_reserve(rows, room * c->row_bytes) < 0)
            return NVML_ERROR_MEMORY;
        unsigned int count = room;
        result = c->call(p, place, c, &count);
        *out_count = count < room ? count : room;
        if (result != NVML_ERROR_INSUFFICIENT_SIZE)
            break;
        uint32_t wanted = count > room && count < c->most ? count : room * 2;
        room = wanted + wanted / 4 < c->most ? wanted + wanted / 4 : c->most;
    }
    if (result == NVML_ERROR_NOT_FOUND)
        *out_count = 0;
    return result == NVML_ERROR_NOT_FOUND ? NVML_SUCCESS : result;
}

// --- processes ---

static bool is_old_row(const struct nvml *n, uint32_t kinds)
{
    if (kinds == FRAME_USAGE_COMPUTE)
        return n->fn.generation.nvmlDeviceGetComputeRunningProcesses == 3;
    if (kinds == FRAME_USAGE_GRAPHICS)
        return n->fn.generation.nvmlDeviceGetGraphicsRunningProcesses == 3;
    return n->fn.generation.nvmlDeviceGetMPSComputeRunningProcesses == 3;
}

static nvmlReturn_t call_processes(const struct usage_pass *p, uint32_t place, struct list_call *c,
                                   unsigned int *count)
{
    const struct nvml_entity *e = entity_of(p, place);
    void *rows = p->u->rows.data;
    switch (c->kinds) {
    case FRAME_USAGE_COMPUTE:
        return nvml_call(p->n, e->record.index, nvmlDeviceGetComputeRunningProcesses, e->device,
                         count, rows);
    case FRAME_USAGE_GRAPHICS:
        return nvml_call(p->n, e->record.index, nvmlDeviceGetGraphicsRunningProcesses, e->device,
                         count, rows);
    default:
        return nvml_call(p->n, e->record.index, nvmlDeviceGetMPSComputeRunningProcesses, e->device,
                         count, rows);
    }
}

static struct usage_row row_at(const struct usage_pass *p, const struct list_call *c, uint32_t i)
{
    nvmlProcessInfo_t info = {.gpuInstanceId = UINT32_MAX, .computeInstanceId = UINT32_MAX};
    memcpy(&info, p->u->rows.data + i * c->row_bytes, c->row_bytes);
    return (struct usage_row){.pid = info.pid,
                              .kinds = c->kinds,
                              .memory_bytes = info.usedGpuMemory,
                              .gpu_instance = info.gpuInstanceId};
}

// A list goes to the end of rows. False: the GPU is gone.
static bool read_processes(const struct usage_pass *p, uint32_t place, enum usage_step step,
                           struct buf *rows)
{
    static const uint32_t kinds[] = {[USAGE_STEP_COMPUTE] = FRAME_USAGE_COMPUTE,
                                     [USAGE_STEP_GRAPHICS] = FRAME_USAGE_GRAPHICS,
                                     [USAGE_STEP_MPS] = FRAME_USAGE_MPS};
    struct nvml_usage_device *x = device_of(p, place);
    struct list_call c = {.row_bytes = is_old_row(p->n, kinds[step]) ? NVML_PROCESS_INFO_V1_BYTES
                                                                     : sizeof(nvmlProcessInfo_t),
                          .room = PROCESS_ROOM,
                          .most = LIMIT_USAGE_DEVICE_PROCESSES,
                          .call = call_processes,
                          .kinds = kinds[step]};
    uint32_t count = 0;
    nvmlReturn_t result = read_list(p, place, &c, &count);
    if (!note(&x->answers[step], result, p->u->mono_ns()))
        return false;
    if (result == NVML_ERROR_INSUFFICIENT_SIZE || result == NVML_ERROR_MEMORY)
        x->processes_whole = false;
    if (result != NVML_SUCCESS && step == USAGE_STEP_COMPUTE)
        x->answers[step].has = false; // these are not all that run
    for (uint32_t i = 0; result == NVML_SUCCESS && i < count; i++) {
        const struct usage_row row = row_at(p, &c, i);
        uint32_t instance = entity_of(p, place)->record.gpu_instance_id;
        if (row.pid && (instance == UINT32_MAX || row.gpu_instance == UINT32_MAX ||
                        row.gpu_instance == instance))
            buf_add(rows, &row, sizeof(row));
    }
    return true;
}

// Of the GPU's list what runs on an instance: its handle names one compute instance, and there may
// be more. Only those with rights get that list whole.
static void add_from_gpu(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place), *gpu = parent_of(p, place);
    const struct usage_row *rows = (const void *)gpu->rows.data;
    for (size_t i = 0; i < gpu->rows.len / sizeof(*rows); i++)
        if (rows[i].gpu_instance == x->gpu_instance_id)
            buf_add(&x->rows, &rows[i], sizeof(rows[i]));
    struct usage_answer *a = &x->answers[USAGE_STEP_COMPUTE];
    a->has |= gpu->answers[USAGE_STEP_COMPUTE].has && gpu->rows.len > 0;
}

static bool read_compute(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    buf_reset(&x->rows);
    x->processes_whole = true;
    x->taken_ns = p->u->mono_ns();
    if (p->u->mono_ns() >= x->answers[USAGE_STEP_COMPUTE].again_ns &&
        !read_processes(p, place, USAGE_STEP_COMPUTE, &x->rows))
        return false;
    if (x->kind != FRAME_ENTITY_GPU)
        add_from_gpu(p, place);
    return true;
}

static bool runs_compute(const struct nvml_usage_device *x, uint32_t pid)
{
    const struct usage_row *rows = (const void *)x->rows.data;
    for (size_t i = 0; i < x->rows.len / sizeof(*rows); i++)
        if (rows[i].pid == pid && rows[i].kinds & FRAME_USAGE_COMPUTE)
            return true;
    return false;
}

// Rows that are remembered end with their process, as far as the other list knows of it.
static bool read_graphics(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    uint64_t now_ns = p->u->mono_ns();
    struct usage_row *rows;
    if (now_ns >= x->graphics_ns) {
        x->graphics_ns = now_ns + USAGE_GRAPHICS_NS;
        buf_reset(&x->graphics);
        if (now_ns >= x->answers[USAGE_STEP_GRAPHICS].again_ns &&
            !read_processes(p, place, USAGE_STEP_GRAPHICS, &x->graphics))
            return false;
        rows = (void *)x->graphics.data;
        for (size_t i = 0; i < x->graphics.len / sizeof(*rows); i++)
            rows[i].kinds |= runs_compute(x, rows[i].pid) ? FRAME_USAGE_COMPUTE : 0;
    }
    if (x->graphics.error)
        x->processes_whole = false;
    rows = (void *)x->graphics.data;
    for (size_t i = 0; i < x->graphics.len / sizeof(*rows); i++)
        if (!(rows[i].kinds & FRAME_USAGE_COMPUTE) || runs_compute(x, rows[i].pid))
            buf_add(&x->rows, &rows[i], sizeof(rows[i]));
    return true;
}

// --- memory, energy ---

static bool read_memory(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    struct nvml_getter_context c = {.n = p->n, .entity = entity_of(p, place)};
    struct nvml_reading reading;
    nvml_get(&c, GETTER_MEMORY, 0, &reading);
    if (!note(&x->answers[USAGE_STEP_MEMORY], reading.result, p->u->mono_ns()))
        return false;
    x->answers[USAGE_STEP_MEMORY].has = reading.result == NVML_SUCCESS;
    x->memory_total = reading.number[0];
    x->memory_used = reading.number[2];
    return true;
}

static bool read_energy(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    const struct nvml_entity *e = entity_of(p, place);
    unsigned long long mj = 0;
    nvmlReturn_t result =
        nvml_call(p->n, e->record.index, nvmlDeviceGetTotalEnergyConsumption, e->device, &mj);
    x->taken_ns = p->u->mono_ns();
    if (!note(&x->answers[USAGE_STEP_ENERGY], result, x->taken_ns))
        return false;
    x->answers[USAGE_STEP_ENERGY].has = result == NVML_SUCCESS;
    x->energy_mj = mj;
    return true;
}

// --- busy time ---

static uint32_t ppm_of_percent(double percent)
{
    if (percent <= 0)
        return 0;
    return percent >= 100 ? 1000000 : (uint32_t)(percent * 10000 + 0.5);
}

static bool read_gpm(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    const struct nvml_entity *e = entity_of(p, place);
    struct nvml_gpm_target target = {.device = entity_of(p, e->record.parent)->device,
                                     .mig_gi = e->record.gpu_instance_id,
                                     .gpu_index = e->record.index};
    if (x->device != target.device) // a sample belongs to the handle that it was taken of
        x->gpm.base_ns = 0;
    x->device = target.device;
    struct nvml_gpm_value value = {.metric = NVML_GPM_METRIC_GRAPHICS_UTIL};
    uint64_t now_ns = p->u->mono_ns(), base_ns = x->gpm.base_ns;
    nvmlReturn_t result = nvml_gpm_read(p->n, &x->gpm, &target, now_ns, &value, 1);
    if (result == NVML_ERROR_NOT_READY)
        return true;
    x->gap |= !base_ns;
    if (result == NVML_SUCCESS)
        result = value.result;
    bool first = !base_ns && result == NVML_ERROR_NO_DATA;
    if (!note(&x->answers[USAGE_STEP_GPM], first ? NVML_SUCCESS : result, now_ns))
        return false;
    if (!first && result != NVML_SUCCESS) {
        x->gap = true;
        return true;
    }
    x->busy.to_ns = now_ns;
    if (first || base_ns >= now_ns)
        return true;
    const struct frame_usage_span span = {
        .from_ns = base_ns, .to_ns = now_ns, .ppm = ppm_of_percent(value.value)};
    buf_add(&p->u->spans, &span, sizeof(span));
    return true;
}

// -1: no percentage.
static int percent_of(nvmlValue_t value, int type)
{
    double number = value.uiVal;
    if (type == NVML_VALUE_TYPE_DOUBLE)
        number = value.dVal;
    else if (type == NVML_VALUE_TYPE_UNSIGNED_LONG || type == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
        number = (double)value.ullVal;
    return number >= 0 && number <= 100 ? (int)number : -1;
}

static nvmlReturn_t call_samples(const struct usage_pass *p, uint32_t place, struct list_call *c,
                                 unsigned int *count)
{
    const struct nvml_entity *e = entity_of(p, place);
    return nvml_call(p->n, e->record.index, nvmlDeviceGetSamples, e->device,
                     NVML_GPU_UTILIZATION_SAMPLES, c->last_us, &c->value_type, count,
                     (nvmlSample_t *)(void *)p->u->rows.data);
}

// Rows become entries where they stand, which are no larger.
static size_t entries_of_samples(const struct usage_pass *p, const struct list_call *c,
                                 uint32_t count)
{
    _Static_assert(sizeof(struct usage_entry) <= sizeof(nvmlSample_t), "in place");
    struct usage_entry *list = (void *)p->u->rows.data;
    size_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        nvmlSample_t sample;
        memcpy(&sample, p->u->rows.data + i * sizeof(sample), sizeof(sample));
        int percent = percent_of(sample.sampleValue, c->value_type);
        if (percent >= 0 && sample.timeStamp)
            list[kept++] =
                (struct usage_entry){.us = sample.timeStamp, .ppm = usage_ppm((uint32_t)percent)};
    }
    return kept;
}

// The newest of too many.
static struct usage_entry *newest(struct usage_entry *list, size_t *count)
{
    size_t left_out = *count > USAGE_ENTRIES_MAX ? *count - USAGE_ENTRIES_MAX : 0;
    *count -= left_out;
    return list + left_out;
}

static bool read_samples(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    struct list_call c = {.row_bytes = sizeof(nvmlSample_t),
                          .room = SAMPLE_ROOM,
                          .most = ENTRIES_READ,
                          .call = call_samples,
                          .last_us = x->busy.last_us,
                          .value_type = NVML_VALUE_TYPE_UNSIGNED_INT};
    uint32_t rows = 0;
    nvmlReturn_t result = read_list(p, place, &c, &rows);
    uint64_t now_ns = p->u->mono_ns();
    if (!note(&x->answers[USAGE_STEP_SAMPLES], result, now_ns))
        return false;
    if (result != NVML_SUCCESS) {
        if (!x->answers[USAGE_STEP_SAMPLES].has)
            usage_track_void(&x->busy);
        return true;
    }
    struct usage_entry *list = (void *)p->u->rows.data;
    size_t count = entries_of_samples(p, &c, rows);
    count = usage_entries_settle(&x->busy, &p->times, list, count);
    list = newest(list, &count);
    if (count > 0 || !x->busy.based)
        x->fresh_ns = now_ns;
    x->answers[USAGE_STEP_SAMPLES].has = now_ns - x->fresh_ns < STALE_NS;
    x->gap |= usage_add_spans(&x->busy, &p->times, list, count, &p->u->spans);
    return true;
}

// --- shares ---

static nvmlReturn_t call_shares(const struct usage_pass *p, uint32_t place, struct list_call *c,
                                unsigned int *count)
{
    const struct nvml_entity *e = entity_of(p, place);
    return nvml_call(p->n, e->record.index, nvmlDeviceGetProcessUtilization, e->device,
                     (nvmlProcessUtilizationSample_t *)(void *)p->u->rows.data, count, c->last_us);
}

static size_t entries_of_shares(const struct usage_pass *p, uint32_t count)
{
    struct usage_entry *list = (void *)p->u->rows.data;
    size_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        nvmlProcessUtilizationSample_t row;
        memcpy(&row, p->u->rows.data + i * sizeof(row), sizeof(row));
        if (row.pid && row.timeStamp && row.smUtil <= 100)
            list[kept++] = (struct usage_entry){
                .us = row.timeStamp, .pid = row.pid, .ppm = usage_ppm(row.smUtil)};
    }
    return kept;
}

// Both buffers are filled at the same times: what the one has, asked first, the other has, too.
static uint64_t known_ns(const struct nvml_usage_device *x, uint64_t now_ns)
{
    if (x->answers[USAGE_STEP_SAMPLES].has)
        return x->busy.to_ns;
    return now_ns > NS_PER_S ? now_ns - NS_PER_S : 0;
}

static bool read_shares(const struct usage_pass *p, uint32_t place)
{
    struct nvml_usage_device *x = device_of(p, place);
    struct list_call c = {.row_bytes = sizeof(nvmlProcessUtilizationSample_t),
                          .room = SHARE_ROOM,
                          .most = ENTRIES_READ,
                          .call = call_shares,
                          .last_us = x->shares.last_us};
    uint32_t rows = 0;
    nvmlReturn_t result = read_list(p, place, &c, &rows);
    uint64_t now_ns = p->u->mono_ns();
    if (!note(&x->answers[USAGE_STEP_SHARES], result, now_ns))
        return false;
    if (result != NVML_SUCCESS) {
        if (!x->answers[USAGE_STEP_SHARES].has)
            usage_track_void(&x->shares);
        return true;
    }
    struct usage_entry *list = (void *)p->u->rows.data;
    size_t count = entries_of_shares(p, rows);
    count = usage_entries_settle(&x->shares, &p->times, list, count);
    if (p->u->shares.len / sizeof(struct frame_usage_share) + count > LIMIT_USAGE_SHARES) {
        usage_track_void(&x->shares);
        x->gap = true;
        return true;
    }
    usage_add_shares(&x->shares, &p->times, &x->busy, known_ns(x, now_ns), list, count,
                     &p->u->shares);
    return true;
}

bool usage_take_step(struct usage_pass *p, uint32_t place, enum usage_step step)
{
    struct nvml_usage_device *x = device_of(p, place);
    if (step != USAGE_STEP_COMPUTE && step != USAGE_STEP_GRAPHICS &&
        p->u->mono_ns() < x->answers[step].again_ns)
        return true;
    switch (step) {
    case USAGE_STEP_COMPUTE:
        return read_compute(p, place);
    case USAGE_STEP_GRAPHICS:
        return read_graphics(p, place);
    case USAGE_STEP_MPS:
        return read_processes(p, place, step, &x->rows);
    case USAGE_STEP_MEMORY:
        return read_memory(p, place);
    case USAGE_STEP_ENERGY:
        return read_energy(p, place);
    case USAGE_STEP_GPM:
        return read_gpm(p, place);
    case USAGE_STEP_SAMPLES:
        return read_samples(p, place);
    case USAGE_STEP_SHARES:
        return read_shares(p, place);
    case USAGE_STEP_END:
        break;
    }
    return true;
}
