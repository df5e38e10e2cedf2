// SPDX-License-Identifier: Apache-2.0
// A frame is taken in three steps: who runs on each device, whose they are (over all devices
// together), and only then the facts to the ledger, so that no share is booked under a name that
// the same frame corrects.
//
// MPS (multi-process service). Since Volta the clients are listed with their memory, and the server
// with a little of its own; whether utilisation carries the clients' pids or the server's is the
// driver's choice, so what was last seen of it decides. Where the server alone is listed (before
// Volta) all work looks like its own: nobody is known to have done it.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "exporter/usage_internal.h"

// As far as comm goes, which the kernel cuts: nvidia-cuda-mps-server.
#define MPS_SERVER "nvidia-cuda-mps"
#define GR_ENGINE_ACTIVE 1001 // DCGM_FI_PROF_GR_ENGINE_ACTIVE
#define PPM 1000000
#define DCGM_LONGEST_NS (65 * NS_PER_S)
#define DCGM_ALIVE_NS (15 * NS_PER_S)

// A device's part of a frame.
struct part {
    struct usage_device *d; // NULL: none of ours
    const struct frame_usage_device *head;
    const struct frame_usage_span *spans;
    const struct frame_usage_share *shares;
    const struct frame_usage_process *processes;
};

// --- Who runs ---

static int compare_pids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static size_t copy_listed(const struct part *p, uint32_t *pids)
{
    for (size_t i = 0; i < p->head->processes; i++)
        pids[i] = p->processes[i].pid;
    return p->head->processes;
}

static bool is_listed(const uint32_t *pids, size_t count, uint32_t pid)
{
    return bsearch(&pid, pids, count, sizeof(*pids), compare_pids);
}

// Those of shares that the list, ascending, has not.
static size_t copy_unlisted(const struct part *p, uint32_t *pids, size_t listed)
{
    size_t count = listed, at = 0;
    for (size_t i = 0; i < p->head->shares; i++) {
        uint32_t pid = p->shares[i].pid;
        at = at < listed && pids[at] == pid ? at : at + 1 < listed ? at + 1 : 0;
        if ((at < listed && pids[at] == pid) || is_listed(pids, listed, pid))
            continue;
        pids[count++] = pid;
    }
    return count;
}

// Each pid of the list and of the shares once, ascending. Almost always the list is that already.
static int gather_pids(const struct part *p, uint32_t **out, size_t *out_count)
{
    size_t most = (size_t)p->head->processes + p->head->shares, kept = 0;
    uint32_t *pids = calloc(most + 1, sizeof(*pids));
    if (!pids)
        return -ENOMEM;
    size_t listed = copy_listed(p, pids);
    for (size_t i = 1; i < listed; i++)
        if (pids[i - 1] >= pids[i]) {
            qsort(pids, listed, sizeof(*pids), compare_pids);
            break;
        }
    size_t count = copy_unlisted(p, pids, listed);
    if (count > listed)
        qsort(pids, count, sizeof(*pids), compare_pids);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || pids[kept - 1] != pids[i])
            pids[kept++] = pids[i];
    *out = pids;
    *out_count = kept;
    return 0;
}

static bool is_as_before(const struct usage *u, const struct usage_runner *old,
                         const struct usage_runner *r)
{
    bool known = old->kind == PROCESS_POD || old->kind == PROCESS_HOST;
    return known && old->listed && r->listed && r->looked_ns >= old->looked_ns &&
           r->looked_ns - old->looked_ns < u->config.look_ns;
}

static void take_identity(struct usage_runner *r, const struct usage_runner *old)
{
    r->looked_ns = old->looked_ns;
    r->start_ticks = old->start_ticks;
    r->kind = old->kind;
    r->own = old->own;
    r->server = old->server;
    memcpy(r->pod_uid, old->pod_uid, sizeof(r->pod_uid));
    memcpy(r->container_id, old->container_id, sizeof(r->container_id));
}

static int identify(struct usage *u, const struct usage_device *d, struct usage_runner *r)
{
    struct process_identity id;
    const struct usage_runner *old = usage_find_runner(d, r->pid);
    if (old && is_as_before(u, old, r)) {
        take_identity(r, old);
        return 0;
    }
    if (!u->config.find(u->config.user, r->pid, &id))
        return -ENOMEM;
    r->kind = (uint8_t)id.kind;
    r->start_ticks = id.start_ticks;
    r->own = id.own_pod;
    r->server = strncmp(id.name, MPS_SERVER, strlen(MPS_SERVER)) == 0;
    r->reused = old && old->start_ticks && id.start_ticks && old->start_ticks != id.start_ticks;
    memcpy(r->pod_uid, id.pod_uid, sizeof(r->pod_uid));
    memcpy(r->container_id, id.container_id, sizeof(r->container_id));
    return 0;
}

static void note_listed(const struct usage_device *d, const struct part *p)
{
    size_t place = 0;
    for (size_t i = 0; i < p->head->processes; i++) {
        struct usage_runner *r = usage_next_runner(d, p->processes[i].pid, &place);
        r->listed = true;
        r->client = (p->processes[i].kinds & FRAME_USAGE_MPS) != 0;
        r->memory_bytes = p->processes[i].memory_bytes;
    }
}

static void note_shares(struct usage_device *d, const struct part *p)
{
    size_t place = 0;
    for (size_t i = 0; i < p->head->shares; i++) {
        struct usage_runner *r = usage_next_runner(d, p->shares[i].pid, &place);
        if (p->shares[i].to_ns < r->sm_to_ns)
            continue;
        r->sm_to_ns = p->shares[i].to_ns;
        r->sm_ppm = p->shares[i].ppm;
    }
}

static int read_runners(struct usage *u, const struct part *p, uint64_t now_ns)
{
    struct usage_device *d = p->d;
    cleanup(mem_freep) uint32_t *pids = NULL;
    size_t count = 0;
    if (!u->config.find)
        return 0;
    if (gather_pids(p, &pids, &count) < 0)
        return -ENOMEM;
    cleanup(mem_freep) struct usage_runner *runners = calloc(count + 1, sizeof(*runners));
    if (!runners)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        runners[i] = (struct usage_runner){.pid = pids[i],
                                           .container = LEDGER_NONE,
                                           .memory_bytes = UINT64_MAX,
                                           .looked_ns = now_ns};
    const struct usage_device now = {.runners = runners, .runner_count = count};
    note_listed(&now, p);
    for (size_t i = 0; i < count; i++)
        if (identify(u, d, &runners[i]) < 0)
            return -ENOMEM;
    free(d->runners);
    d->runners = TAKE_PTR(runners);
    d->runner_count = count;
    note_shares(d, p);
    return 0;
}

// --- Evidence ---

static void judge_mps(struct usage_device *d)
{
    bool server = false, client = false, server_share = false, client_share = false;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        server = server || (r->server && r->listed);
        client = client || (!r->server && !r->own && r->listed);
        server_share = server_share || (r->server && r->sm_to_ns);
        client_share = client_share || (r->client && !r->server && r->sm_to_ns);
    }
    d->has_server = server;
    d->hidden = server && !client;
    if (client_share)
        d->by_client = true;
    else if (server_share || !server)
        d->by_client = false;
}

static bool any_unreadable(const struct usage_device *d)
{
    for (size_t i = 0; i < d->runner_count; i++)
        if (d->runners[i].listed && d->runners[i].kind == PROCESS_UNREADABLE)
            return true;
    return false;
}

static bool lists_processes(const struct usage *u, const struct usage_device *d)
{
    return u->config.find && (d->flags & FRAME_USAGE_PROCESSES);
}

static bool has_busy_evidence(const struct usage *u, const struct usage_device *d)
{
    return lists_processes(u, d) && (d->flags & FRAME_USAGE_SHARES) && !any_unreadable(d) &&
           (!d->has_server || (d->by_client && !d->hidden));
}

// A sum of which a part is not known is none.
static bool has_memory_evidence(const struct usage *u, const struct usage_device *d)
{
    if (!lists_processes(u, d) || any_unreadable(d) || d->hidden)
        return false;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if (r->listed && r->container != LEDGER_NONE && !r->server && r->memory_bytes == UINT64_MAX)
            return false;
    }
    return true;
}

// --- To the ledger ---

static uint32_t number_in(const struct usage *u, const struct usage_device *d)
{
    return (uint32_t)(d - u->devices);
}

static int tell_shares(struct usage *u, const struct part *p)
{
    int result = 0;
    size_t place = 0;
    for (size_t i = 0; i < p->head->shares; i++) {
        const struct frame_usage_share *s = &p->shares[i];
        const struct usage_runner *r = usage_next_runner(p->d, s->pid, &place);
        // Whose time it was before the pid changed hands nobody can say.
        uint32_t container = r && !r->reused && !r->server ? r->container : LEDGER_NONE;
        if (ledger_add_share(u->config.ledger, number_in(u, p->d), container, s->from_ns, s->to_ns,
                             s->ppm) < 0)
            result = -ENOMEM;
    }
    return result;
}

static int tell_processes(struct usage *u, const struct usage_device *d, uint64_t at_ns)
{
    size_t count = 0;
    if (!lists_processes(u, d)) {
        ledger_clear_processes(u->config.ledger, number_in(u, d), at_ns);
        return 0;
    }
    cleanup(mem_freep) struct ledger_process *list = calloc(d->runner_count + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if (!r->listed || r->own)
            continue;
        list[count++] = (struct ledger_process){r->container, r->foreign, r->memory_bytes};
    }
    return ledger_set_processes(u->config.ledger, number_in(u, d), at_ns, list, count,
                                has_busy_evidence(u, d), has_memory_evidence(u, d));
}

// DCGM's values come for an instance that the driver's own library has none for.
static bool has_dcgm_busy(const struct usage_device *d, uint64_t now_ns)
{
    uint64_t alive = d->dcgm_step * 3 > DCGM_ALIVE_NS ? d->dcgm_step * 3 : DCGM_ALIVE_NS;
    return d->dcgm_step && d->dcgm_step <= LEDGER_LAG_NS &&
           (now_ns < d->dcgm_ns || now_ns - d->dcgm_ns <= alive);
}

static void tell_reach(struct usage *u, const struct part *p)
{
    struct usage_device *d = p->d;
    const struct frame_usage_device *head = p->head;
    bool own = (head->flags & FRAME_USAGE_BUSY) != 0;
    bool dcgm = !own && !d->has_instances && has_dcgm_busy(d, head->taken_ns);
    const struct ledger_reach reach = {
        .at_ns = head->taken_ns,
        .has_busy = !d->has_instances && (own || dcgm),
        .has_shares = !d->has_instances && u->config.find && (head->flags & FRAME_USAGE_SHARES),
        .busy_to_ns = dcgm ? d->dcgm_ns : head->busy_to_ns,
        .shares_to_ns = head->shares_to_ns,
    };
    ledger_reach(u->config.ledger, number_in(u, d), &reach);
}

static int tell_usage(struct usage *u, const struct part *p)
{
    struct ledger *l = u->config.ledger;
    const struct usage_device *d = p->d;
    uint32_t number = number_in(u, d);
    int result = 0;
    for (size_t i = 0; i < p->head->spans; i++) {
        const struct frame_usage_span *s = &p->spans[i];
        if (ledger_add_busy(l, number, s->from_ns, s->to_ns, s->ppm, !s->filled) < 0)
            result = -ENOMEM;
    }
    if (has_busy_evidence(u, d) && tell_shares(u, p) < 0)
        result = -ENOMEM;
    if (d->flags & FRAME_USAGE_MEMORY)
        ledger_add_memory(l, number, p->head->taken_ns, p->head->memory_used,
                          p->head->memory_total);
    if (tell_processes(u, d, p->head->taken_ns) < 0)
        result = -ENOMEM;
    return result;
}

static int tell_device(struct usage *u, const struct part *p)
{
    struct usage_device *d = p->d;
    uint32_t number = number_in(u, d);
    int result = 0;
    if (d->flags & FRAME_USAGE_GAP)
        ledger_gap(u->config.ledger, number, p->head->taken_ns);
    if (!d->has_instances && tell_usage(u, p) < 0)
        result = -ENOMEM;
    if (d->board == number && (d->flags & FRAME_USAGE_ENERGY) &&
        ledger_add_energy(u->config.ledger, number, p->head->taken_ns, p->head->energy_mj) < 0)
        result = -ENOMEM;
    tell_reach(u, p);
    return result;
}

// --- USAGE ---

static struct part *cut_parts(const struct usage *u, const struct device_view *view,
                              const struct frame *frame)
{
    const struct frame_usage *head = frame->as.usage.head;
    struct part *parts = calloc((size_t)head->count + 1, sizeof(*parts));
    struct part at = {NULL, frame->as.usage.devices, frame->as.usage.spans, frame->as.usage.shares,
                      frame->as.usage.processes};
    for (size_t i = 0; parts && i < head->count; i++) {
        parts[i] = at;
        parts[i].d = usage_device_of(u, view, DEVICE_SOURCE_NVML, at.head->entity);
        at.spans += at.head->spans;
        at.shares += at.head->shares;
        at.processes += at.head->processes;
        at.head++;
    }
    return parts;
}

// Who runs on a device that could not be read is who ran before; what it did is booked all the
// same, or the ledger would be without facts that no later frame repeats.
static int take_usage(struct usage *u, const struct device_view *view, const struct frame *frame)
{
    const struct frame_usage *head = frame->as.usage.head;
    cleanup(mem_freep) struct part *parts = cut_parts(u, view, frame);
    int result = 0;
    if (!parts)
        return -ENOMEM;
    for (size_t i = 0; i < head->count; i++) {
        if (!parts[i].d)
            continue;
        parts[i].d->flags = parts[i].head->flags;
        parts[i].d->seen = true;
        if (read_runners(u, &parts[i], head->ended_ns) < 0)
            result = -ENOMEM;
    }
    if (usage_eliminate(u, head->ended_ns) < 0)
        result = -ENOMEM;
    for (size_t i = 0; i < u->device_count; i++)
        if (usage_tell_holders(u, i, head->ended_ns) < 0)
            result = -ENOMEM;
    for (size_t i = 0; i < head->count; i++) {
        if (!parts[i].d)
            continue;
        usage_name_runners(u, parts[i].d);
        judge_mps(parts[i].d);
        if (tell_device(u, &parts[i]) < 0)
            result = -ENOMEM;
    }
    u->stats.frames++;
    usage_count(u);
    return result;
}

// --- DCGM's activity ---

// On Ampere a value is the instance's part of the whole board, and so never more than its slices.
static uint32_t activity_ppm(const struct usage_device *d, double value)
{
    if (d->of_share && d->slices && d->total_slices)
        value = value * d->total_slices / d->slices;
    if (!(value > 0))
        return 0;
    return value >= 1 ? PPM : (uint32_t)(value * PPM + 0.5);
}

// A value is the mean since the one before; after a pause of DCGM's nobody knows of when.
static int take_activity(struct usage *u, struct usage_device *d, const struct frame_record *rec)
{
    uint64_t from_ns = d->dcgm_ns, to_ns = rec->taken_ns;
    if (to_ns <= from_ns)
        return 0;
    d->dcgm_ns = to_ns;
    uint64_t distance = to_ns - from_ns, step = d->dcgm_step;
    if (from_ns == 0 || distance > DCGM_LONGEST_NS)
        return 0;
    if (step == 0 || distance < step)
        d->dcgm_step = distance;
    if (step && distance > 3 * step)
        return 0;
    return ledger_add_busy(u->config.ledger, number_in(u, d), from_ns, to_ns,
                           activity_ppm(d, rec->value.f64), true);
}

static int take_sample(struct usage *u, const struct device_view *view, const struct frame *frame)
{
    int result = 0;
    for (size_t i = 0; i < frame->as.sample.head->count; i++) {
        const struct frame_record *rec = &frame->as.sample.list[i];
        if (rec->field != GR_ENGINE_ACTIVE || rec->status != FRAME_OK ||
            rec->type != FRAME_VALUE_DOUBLE)
            continue;
        struct usage_device *d = usage_device_of(u, view, DEVICE_SOURCE_DCGM, rec->entity);
        if (!d || d->board == number_in(u, d) || (d->seen && (d->flags & FRAME_USAGE_BUSY)))
            continue;
        if (take_activity(u, d, rec) < 0)
            result = -ENOMEM;
    }
    return result;
}

int usage_take(struct usage *u, const struct device_view *view, enum device_source source,
               const struct frame *frame)
{
    const struct inventory *inv = view->sources[source];
    if (!inv)
        return 0;
    if (source == DEVICE_SOURCE_NVML && frame->type == FRAME_USAGE &&
        frame->as.usage.head->generation == inv->generation)
        return take_usage(u, view, frame);
    if (source == DEVICE_SOURCE_DCGM && frame->type == FRAME_SAMPLE &&
        frame->as.sample.head->generation == inv->generation)
        return take_sample(u, view, frame);
    return 0;
}
