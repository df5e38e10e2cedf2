// SPDX-License-Identifier: Apache-2.0
// How it works: a pass goes through the GPUs, and through the steps of each and of its instances.
// A device whose last step is taken goes into the frame. A GPU that has used up its slice is left
// where it is, and rests until most of the time has been for others.
#include "source/nvml_usage_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "source/nvml_call.h"

#define NEVER UINT64_MAX
#define STEPPED_NS (120 * NS_PER_S) // longer than any buffer of the driver's reaches back
#define ROWS_MOST (LIMIT_USAGE_DEVICE_PROCESSES * 4u * sizeof(struct usage_row))

void nvml_usage_init(struct nvml_usage *u)
{
    *u = (struct nvml_usage){
        .due_ns = NEVER,
        .head = BUF_INIT(LIMIT_ENTITIES * sizeof(struct frame_usage_device)),
        .spans = BUF_INIT(LIMIT_USAGE_SPANS * sizeof(struct frame_usage_span)),
        .shares = BUF_INIT(LIMIT_USAGE_SHARES * sizeof(struct frame_usage_share)),
        .processes = BUF_INIT(LIMIT_USAGE_PROCESSES * sizeof(struct frame_usage_process)),
        .rows = BUF_INIT(1u << 18), // of 4096 rows
        .mono_ns = clock_mono_ns,
    };
}

// --- devices ---

// gpu_index: of the GPU; samples of GPM can be freed while the library is initialised.
static void device_deinit(struct nvml *n, struct nvml_usage_device *x)
{
    if (n && n->initialised)
        nvml_gpm_reset(n, &x->gpm, NVML_NO_GPU);
    buf_deinit(&x->rows);
    buf_deinit(&x->graphics);
    buf_deinit(&x->held);
    buf_deinit(&x->ahead);
}

static void free_devices(struct nvml *n, struct nvml_usage *u)
{
    for (uint32_t i = 0; i < u->device_count; i++)
        device_deinit(n, &u->devices[i]);
    free(u->devices);
    u->devices = NULL;
    u->device_count = 0;
    u->has_list = false;
}

void nvml_usage_deinit(struct nvml *n, struct nvml_usage *u)
{
    free_devices(n, u);
    buf_deinit(&u->head);
    buf_deinit(&u->spans);
    buf_deinit(&u->shares);
    buf_deinit(&u->processes);
    buf_deinit(&u->rows);
}

static void device_init(struct nvml_usage_device *x, const struct nvml_entity *e, uint32_t place)
{
    *x = (struct nvml_usage_device){
        .kind = e->record.kind,
        .gpu_instance_id = e->record.gpu_instance_id,
        .slices = e->record.slices,
        .at = place,
        .gap = true,
        .rows = BUF_INIT(ROWS_MOST),
        .graphics = BUF_INIT(ROWS_MOST),
        .held = BUF_INIT(2 * USAGE_ENTRIES_MAX * sizeof(struct frame_usage_span)),
        .ahead = BUF_INIT(LIMIT_USAGE_SHARES * sizeof(struct frame_usage_share)),
    };
    memcpy(x->uuid, e->record.uuid, sizeof(x->uuid));
}

static bool same_device(const struct nvml_usage_device *x, const struct nvml_entity *e)
{
    return x->kind == e->record.kind && x->uuid[0] && strcmp(x->uuid, e->record.uuid) == 0 &&
           x->gpu_instance_id == e->record.gpu_instance_id && x->slices == e->record.slices;
}

// What goes on is read anew from its first step.
static void take_over(struct nvml_usage_device *x, struct nvml_usage *u,
                      const struct nvml_entity *e)
{
    for (uint32_t i = 0; i < u->device_count; i++) {
        struct nvml_usage_device *old = &u->devices[i];
        if (!same_device(old, e))
            continue;
        uint32_t place = x->at;
        *x = *old;
        x->at = place;
        x->step = 0;
        x->gap |= old->held.len > 0;
        buf_reset(&x->held);
        old->gpm = (struct nvml_gpm){0};
        old->rows = old->graphics = old->held = old->ahead = (struct buf){0};
        old->uuid[0] = '\0';
        return;
    }
}

// False: no memory.
static bool follow_list(struct nvml_usage *u, struct nvml *n, const struct nvml_devices *d)
{
    if (u->has_list && u->generation == d->generation && u->device_count == d->count)
        return true;
    struct nvml_usage_device *list = NULL;
    if (d->count && !(list = calloc(d->count, sizeof(*list))))
        return false;
    for (uint32_t i = 0; i < d->count; i++) {
        device_init(&list[i], &d->list[i], i);
        take_over(&list[i], u, &d->list[i]);
    }
    free_devices(n, u);
    u->devices = list;
    u->device_count = d->count;
    u->generation = d->generation;
    u->has_list = true;
    return true;
}

// --- what is wanted ---

// Nothing that comes follows on what came.
static void device_break(struct nvml_usage_device *x)
{
    x->gap = true;
    x->gpm.base_ns = 0;
    x->step = 0;
    buf_reset(&x->held);
    buf_reset(&x->ahead);
    usage_track_void(&x->busy);
    usage_track_void(&x->shares);
}

void nvml_usage_break(struct nvml_usage *u)
{
    for (uint32_t i = 0; i < u->device_count; i++)
        u->devices[i].gap = true;
}

void nvml_usage_watch(struct nvml_usage *u, uint64_t period_ns, uint64_t now_ns)
{
    if (period_ns == u->period_ns)
        return;
    for (uint32_t i = 0; !u->period_ns && i < u->device_count; i++)
        device_break(&u->devices[i]);
    u->period_ns = period_ns;
    u->due_ns = period_ns ? (now_ns / period_ns + 1) * period_ns : NEVER;
}

void nvml_usage_release(struct nvml *n, struct nvml_usage *u)
{
    for (uint32_t i = 0; i < u->device_count; i++) {
        struct nvml_usage_device *x = &u->devices[i];
        nvml_gpm_reset(n, &x->gpm, NVML_NO_GPU);
        memset(x->answers, 0, sizeof(x->answers));
        x->graphics_ns = x->rest_ns = 0;
        x->at = i;
        device_break(x);
    }
}

// --- the frame ---

static int compare_rows(const void *a, const void *b)
{
    const struct usage_row *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

// A process of several lists has the larger memory; UINT64_MAX is no memory but a lack of it.
static void merge_row(struct frame_usage_process *into, const struct usage_row *row)
{
    into->kinds |= row->kinds;
    if (into->memory_bytes == UINT64_MAX ||
        (row->memory_bytes != UINT64_MAX && row->memory_bytes > into->memory_bytes))
        into->memory_bytes = row->memory_bytes;
}

// Returns how many, 0 also where they are not all.
static uint32_t add_processes(struct nvml_usage *u, struct nvml_usage_device *x)
{
    struct usage_row *rows = (void *)x->rows.data;
    size_t count = x->rows.len / sizeof(*rows), before = u->processes.len;
    struct frame_usage_process process = {0};
    uint32_t added = 0;
    if (count > 1)
        qsort(rows, count, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < count && x->processes_whole; i++) {
        if (i && rows[i].pid == rows[i - 1].pid) {
            merge_row(&process, &rows[i]);
        } else {
            if (i)
                buf_add(&u->processes, &process, sizeof(process));
            process = (struct frame_usage_process){
                .pid = rows[i].pid, .kinds = rows[i].kinds, .memory_bytes = rows[i].memory_bytes};
            added++;
        }
        if (i + 1 == count)
            buf_add(&u->processes, &process, sizeof(process));
    }
    size_t room = LIMIT_USAGE_PROCESSES - before / sizeof(process);
    if (added <= LIMIT_USAGE_DEVICE_PROCESSES && added <= room)
        return added;
    u->processes.len = before;
    u->processes.error = u->processes.error == -EFBIG ? 0 : u->processes.error;
    x->processes_whole = false;
    return 0;
}

static uint32_t flags_of(const struct usage_pass *p, uint32_t place)
{
    const struct nvml_usage_device *x = &p->u->devices[place];
    const struct usage_answer *a = x->answers;
    bool parent = x->kind == FRAME_ENTITY_GPU && p->d->list[place].record.mig_enabled;
    uint32_t flags = x->gap ? FRAME_USAGE_GAP : 0;
    if (a[USAGE_STEP_ENERGY].has)
        flags |= FRAME_USAGE_ENERGY;
    if (parent)
        return flags;
    if (a[USAGE_STEP_SAMPLES].has || a[USAGE_STEP_GPM].has)
        flags |= FRAME_USAGE_BUSY;
    if (a[USAGE_STEP_SHARES].has)
        flags |= FRAME_USAGE_SHARES;
    if (a[USAGE_STEP_COMPUTE].has && x->processes_whole && !x->rows.error)
        flags |= FRAME_USAGE_PROCESSES;
    if (a[USAGE_STEP_MEMORY].has)
        flags |= FRAME_USAGE_MEMORY;
    return flags;
}

static void add_device(struct usage_pass *p, uint32_t place, size_t spans_before,
                       size_t shares_before)
{
    struct nvml_usage *u = p->u;
    struct nvml_usage_device *x = &u->devices[place];
    uint32_t flags = flags_of(p, place);
    usage_refill_spans(x, &u->spans, spans_before, &u->shares, shares_before);
    struct frame_usage_device out = {
        .entity = place,
        .taken_ns = x->taken_ns,
        .busy_to_ns = x->busy.to_ns,
        .shares_to_ns = x->shares.to_ns,
        .spans = (uint32_t)((u->spans.len - spans_before) / sizeof(struct frame_usage_span)),
        .shares = (uint32_t)((u->shares.len - shares_before) / sizeof(struct frame_usage_share)),
    };
    if (flags & FRAME_USAGE_PROCESSES) {
        out.processes = add_processes(u, x);
        flags &= x->processes_whole ? ~0u : ~(uint32_t)FRAME_USAGE_PROCESSES;
    }
    if (flags & FRAME_USAGE_ENERGY)
        out.energy_mj = x->energy_mj;
    if (flags & FRAME_USAGE_MEMORY) {
        out.memory_used = x->memory_used;
        out.memory_total = x->memory_total;
    }
    out.flags = flags;
    buf_add(&u->head, &out, sizeof(out));
    x->gap = false;
}

// --- the pass ---

static uint32_t end_of_gpu(const struct nvml_devices *d, uint32_t gpu)
{
    uint32_t end = gpu + 1;
    while (end < d->count && d->list[end].record.parent == gpu)
        end++;
    return end;
}

// True: through with it. False: *gone, or the slice is used up.
static bool read_device(struct usage_pass *p, uint32_t place, uint64_t until_ns, bool *gone)
{
    struct nvml_usage *u = p->u;
    struct nvml_usage_device *x = &u->devices[place];
    size_t spans = u->spans.len, shares = u->shares.len;
    buf_add_sv(&u->spans, buf_sv(&x->held));
    buf_reset(&x->held);
    while (x->step < USAGE_STEP_END) {
        uint32_t calls = p->n->calls;
        enum usage_step step = (enum usage_step)x->step++;
        if (usage_has_step(p, place, step) && !usage_take_step(p, place, step)) {
            *gone = true;
            u->spans.len = spans;
            u->shares.len = shares;
            return false;
        }
        if (p->n->calls == calls || x->step == USAGE_STEP_END || u->mono_ns() < until_ns)
            continue;
        buf_add_sv(&x->held, sv_sub(buf_sv(&u->spans), spans, u->spans.len));
        x->gap |= x->held.error != 0;
        u->spans.len = spans;
        return false;
    }
    x->step = 0;
    add_device(p, place, spans, shares);
    return true;
}

static bool can_be_read(const struct nvml_entity *e)
{
    return e->device &&
           (e->record.state == FRAME_ENTITY_UP || e->record.state == FRAME_ENTITY_RESET_REQUIRED);
}

static void leave_out(struct usage_pass *p, uint32_t gpu)
{
    p->u->devices[gpu].at = gpu;
    for (uint32_t i = gpu; i < end_of_gpu(p->d, gpu); i++)
        device_break(&p->u->devices[i]);
}

static void read_gpu(struct usage_pass *p, uint32_t gpu)
{
    struct nvml_usage *u = p->u;
    struct nvml_usage_device *x = &u->devices[gpu];
    uint64_t started_ns = u->mono_ns(), until_ns = started_ns + USAGE_SLICE_NS;
    bool gone = !can_be_read(&p->d->list[gpu]);
    if (!gone && started_ns < x->rest_ns)
        return;
    while (!gone && read_device(p, x->at, until_ns, &gone)) {
        if (++x->at < end_of_gpu(p->d, gpu) && u->mono_ns() < until_ns)
            continue;
        break;
    }
    if (gone) {
        leave_out(p, gpu);
        return;
    }
    if (x->at == end_of_gpu(p->d, gpu))
        x->at = gpu;
    uint64_t now_ns = u->mono_ns();
    if (now_ns >= until_ns)
        x->rest_ns = now_ns + 3 * (now_ns - started_ns);
}

static void compare_clocks(struct usage_pass *p, struct nvml_usage_clock clock)
{
    struct nvml_usage *u = p->u;
    int64_t ahead_ns = (int64_t)(clock.wall_ns - clock.now_ns);
    int64_t moved_ns = u->has_wall ? ahead_ns - u->wall_ahead_ns : 0;
    if (moved_ns > (int64_t)USAGE_STEP_NS || moved_ns < -(int64_t)USAGE_STEP_NS) {
        u->stepped_until_ns = clock.now_ns + STEPPED_NS;
        for (uint32_t i = 0; i < u->device_count; i++) {
            u->devices[i].gap = true;
            usage_track_void(&u->devices[i].busy);
            usage_track_void(&u->devices[i].shares);
        }
    }
    u->wall_ahead_ns = ahead_ns;
    u->has_wall = true;
    p->times = (struct usage_times){.ahead_ns = ahead_ns,
                                    .wall_us = clock.wall_ns / NS_PER_US,
                                    .stepped_lately = clock.now_ns < u->stepped_until_ns};
}

static bool add_frame(struct usage_pass *p, uint64_t started_ns, uint32_t calls, struct buf *frame)
{
    const struct nvml_usage *u = p->u;
    const struct frame_usage head = {
        .generation = p->d->generation,
        .count = (uint32_t)(u->head.len / sizeof(struct frame_usage_device)),
        .spans = (uint32_t)(u->spans.len / sizeof(struct frame_usage_span)),
        .shares = (uint32_t)(u->shares.len / sizeof(struct frame_usage_share)),
        .processes = (uint32_t)(u->processes.len / sizeof(struct frame_usage_process)),
        .vendor_calls = p->n->calls - calls,
        .started_ns = started_ns,
        .ended_ns = u->mono_ns(),
    };
    const struct buf *parts[] = {&u->head, &u->spans, &u->shares, &u->processes};
    size_t start = frame_begin(frame, FRAME_USAGE);
    buf_add(frame, &head, sizeof(head));
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        if (parts[i]->error)
            return false;
        buf_add_sv(frame, buf_sv(parts[i]));
    }
    frame_end(frame, start);
    return !frame->error;
}

bool nvml_usage_read(struct nvml_usage *u, struct nvml *n, const struct nvml_devices *d,
                     struct nvml_usage_clock clock, struct buf *frame)
{
    struct usage_pass p = {.u = u, .n = n, .d = d};
    uint32_t calls = n->calls;
    if (u->period_ns)
        u->due_ns = (clock.now_ns / u->period_ns + 1) * u->period_ns;
    buf_reset(frame);
    buf_reset(&u->head);
    buf_reset(&u->spans);
    buf_reset(&u->shares);
    buf_reset(&u->processes);
    if (!follow_list(u, n, d))
        return false;
    compare_clocks(&p, clock);
    for (uint32_t gpu = 0; gpu < d->count; gpu = end_of_gpu(d, gpu))
        read_gpu(&p, gpu);
    if (add_frame(&p, clock.now_ns, calls, frame))
        return true;
    nvml_usage_break(u);
    return false;
}
