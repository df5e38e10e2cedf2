// SPDX-License-Identifier: Apache-2.0
// How it works: three questions, each with its time. What stands in the engine for them (a group
// with health watches, groups and a field group for XIDs) is made anew when the list of devices or
// the wish is another, and else left alone.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gpu/catalogue.h"
#include "source/dcgm_call.h"
#include "source/dcgm_health_internal.h"
#include "source/dcgm_survey.h"

#define NEVER UINT64_MAX
#define XID_PERIOD_NS NS_PER_S
#define AGAIN_LEAST_NS (5 * NS_PER_S)
#define AGAIN_MOST_NS (600 * NS_PER_S)

// --- groups ---

uint32_t dcgm_health_members(const struct dcgm_health *h, bool instances, uint64_t gpus,
                             uint32_t *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->v->count; i++) {
        const struct dcgm_entity *e = &h->v->list[i];
        bool is_gpu = e->group == DCGM_FE_GPU;
        bool is_part = e->group == DCGM_FE_GPU_I || e->group == DCGM_FE_GPU_CI;
        if ((is_gpu || (is_part && instances)) && e->record.state != FRAME_ENTITY_SKIPPED &&
            gpus >> e->gpu_mask_bit & 1)
            out[count++] = i;
    }
    return count;
}

uint64_t dcgm_health_hash(const struct dcgm_health *h, const uint32_t *places, uint32_t count)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < count; i++) {
        const struct dcgm_entity *e = &h->v->list[places[i]];
        hash = (hash ^ e->group) * UINT64_C(1099511628211);
        hash = (hash ^ e->id) * UINT64_C(1099511628211);
    }
    return hash;
}

dcgmReturn_t dcgm_health_make_group(struct dcgm_health *h, const uint32_t *places, uint32_t count,
                                    dcgmGpuGrp_t *out)
{
    struct dcgm *d = h->d;
    dcgmGpuGrp_t group = 0;
    dcgmReturn_t result = dcgm_group_create(d, &group);
    if (result != DCGM_ST_OK)
        return result;
    for (uint32_t i = 0; i < count && result == DCGM_ST_OK; i++) {
        const struct dcgm_entity *e = &h->v->list[places[i]];
        result = dcgm_call(d, dcgmGroupAddEntity, d->engine, group, e->group, e->id);
    }
    if (result == DCGM_ST_OK)
        *out = group;
    else
        dcgm_group_destroy(d, group);
    return result;
}

// --- the public ones ---

int dcgm_health_new(struct dcgm *d, struct dcgm_devices *v, struct dcgm_health **out)
{
    struct dcgm_health *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->d = d;
    h->v = v;
    h->verdicts_ns = h->peers_ns = h->xids_ns = h->again_ns = NEVER;
    *out = h;
    return 0;
}

void dcgm_health_free(struct dcgm_health *h)
{
    if (!h)
        return;
    if (h->d->engine) {
        dcgm_verdicts_unset(h);
        dcgm_xids_unset(h);
    }
    dcgm_xids_deinit(&h->xids);
    free(h);
}

void dcgm_health_forget(struct dcgm_health *h)
{
    h->group = 0;
    dcgm_xids_forget(&h->xids);
    h->verdicts_ns = h->peers_ns = h->xids_ns = h->again_ns = NEVER;
    h->applied = h->broken = false;
}

// What the engine does not have is no failure of the whole. It is asked for again: while the
// engine starts, a module or a right of it may be missing.
static dcgmReturn_t excuse(struct dcgm_health *h, dcgmReturn_t result, const char *what)
{
    if (result == DCGM_ST_OK || !dcgm_result_is_lack(result))
        return result;
    if (result == DCGM_ST_NO_DATA)
        return DCGM_ST_OK;
    h->again_ns = clock_mono_ns() + h->wait_ns;
    log_warn("host engine does not watch", LOG_STR("what", what),
             LOG_STR("reason", dcgm_result_text(result)), LOG_I64("code", result), LOG_LIMIT(what));
    return DCGM_ST_OK;
}

// XIDs first: they are listened to whatever else is refused.
static dcgmReturn_t make(struct dcgm_health *h)
{
    dcgmReturn_t result = dcgm_xids_set(h), verdicts = DCGM_ST_OK;
    h->again_ns = NEVER;
    h->xids_ns = result == DCGM_ST_OK ? 0 : NEVER;
    h->verdicts_ns = NEVER;
    h->peers_ns = h->wants_peers ? 0 : NEVER;
    if (dcgm_result_is_of_engine(result) || result == DCGM_ST_MEMORY)
        return result;
    result = excuse(h, result, "xids");
    if (!h->wants_verdicts) {
        dcgm_verdicts_unset(h);
        return result;
    }
    verdicts = dcgm_verdicts_set(h);
    if (verdicts == DCGM_ST_OK)
        h->verdicts_ns = 0; // also of an old group: places in the list are others now
    verdicts = excuse(h, verdicts, "health");
    return result == DCGM_ST_OK ? verdicts : result;
}

dcgmReturn_t dcgm_health_apply(struct dcgm_health *h, bool verdicts, bool peers, uint64_t gpus,
                               const uint64_t *period_ns)
{
    uint64_t medium_ns = period_ns[FIELD_CLASS_MEDIUM], slow_ns = period_ns[FIELD_CLASS_SLOW];
    if (h->applied && h->generation == h->v->generation && h->wants_verdicts == verdicts &&
        h->wants_peers == peers && h->gpus == gpus && h->medium_ns == medium_ns &&
        h->slow_ns == slow_ns)
        return DCGM_ST_OK;
    h->wants_verdicts = verdicts;
    h->wants_peers = peers;
    h->gpus = gpus;
    h->medium_ns = medium_ns;
    h->slow_ns = slow_ns;
    h->generation = h->v->generation;
    h->wait_ns = AGAIN_LEAST_NS;
    dcgmReturn_t result = make(h);
    h->applied = result == DCGM_ST_OK;
    return result;
}

uint64_t dcgm_health_due_ns(const struct dcgm_health *h)
{
    uint64_t due = h->verdicts_ns < h->peers_ns ? h->verdicts_ns : h->peers_ns;
    due = h->again_ns < due ? h->again_ns : due;
    return h->xids_ns < due ? h->xids_ns : due;
}

bool dcgm_health_listens(const struct dcgm_health *h)
{
    return h->xids.watched;
}

// Of a question that was not answered: what the loop is to know. Groups that the engine does not
// know are made anew with the next read: it was started again behind its connection.
static dcgmReturn_t settle(struct dcgm_health *h, dcgmReturn_t result, const char *what)
{
    if (result == DCGM_ST_OK || result == DCGM_ST_MEMORY || dcgm_result_is_of_engine(result))
        return result;
    h->broken |= result == DCGM_ST_NOT_CONFIGURED || result == DCGM_ST_NOT_WATCHED;
    log_warn("host engine does not tell", LOG_STR("what", what),
             LOG_STR("reason", dcgm_result_text(result)), LOG_I64("code", result), LOG_LIMIT(what));
    return DCGM_ST_OK;
}

// What is broken is made anew, and what was lacking tried again.
static dcgmReturn_t mend(struct dcgm_health *h, uint64_t now_ns)
{
    if (!h->broken && now_ns < h->again_ns)
        return DCGM_ST_OK;
    if (h->broken)
        dcgm_health_forget(h);
    h->wait_ns = h->wait_ns < AGAIN_MOST_NS / 2 ? 2 * h->wait_ns : AGAIN_MOST_NS;
    dcgmReturn_t result = make(h);
    h->applied = result == DCGM_ST_OK;
    if (result != DCGM_ST_OK || h->again_ns != NEVER)
        h->again_ns = now_ns + h->wait_ns;
    return result;
}

// DCGM 3 has no such question.
static dcgmReturn_t read_peers(struct dcgm_health *h, struct buf *out)
{
    dcgmReturn_t result = dcgm_peers_read(h, out);
    return dcgm_result_is_lack(result) ? DCGM_ST_OK : settle(h, result, "peers");
}

dcgmReturn_t dcgm_health_read(struct dcgm_health *h, uint64_t now_ns, struct buf *out)
{
    dcgmReturn_t result = mend(h, now_ns);
    if (result == DCGM_ST_OK && now_ns >= h->xids_ns) {
        h->xids_ns = now_ns + XID_PERIOD_NS;
        result = settle(h, dcgm_xids_read(h, out), "xids");
    }
    if (result == DCGM_ST_OK && now_ns >= h->verdicts_ns) {
        h->verdicts_ns = now_ns + h->medium_ns;
        result = settle(h, dcgm_verdicts_read(h, out), "health");
    }
    if (result == DCGM_ST_OK && now_ns >= h->peers_ns) {
        h->peers_ns = now_ns + h->slow_ns;
        result = read_peers(h, out);
    }
    return result == DCGM_ST_OK && out->error ? DCGM_ST_MEMORY : result;
}
