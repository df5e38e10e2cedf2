// SPDX-License-Identifier: Apache-2.0
// How it works: a set is turned into a plan (dcgm_watch_plan.h) each time it, the list of devices
// or the engine changes; what the plan before made and the new one wants just so changes hands.
// Each field of each watched entity has a cell with what was last heard of it.
//
// DCGM keeps one watch per connection, entity and field: watching again changes it, and unwatching
// one of two groups that overlap ends it for both. So what is unwatched comes first, and what stays
// is watched once more after it.
#include "source/dcgm_watch_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define RETRY_LEAST_NS (5 * NS_PER_S)
#define RETRY_HELD_NS (60 * NS_PER_S)
#define RETRY_ALL_NS (600 * NS_PER_S)
#define REPLANS_MAX 4 // each knows more of the fields that the engine does not know

int dcgm_watch_new(struct dcgm *d, struct dcgm_devices *v, struct dcgm_watch **out)
{
    struct dcgm_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->d = d;
    w->v = v;
    w->records = BUF_INIT(LIMIT_FRAME_BYTES);
    w->strings = BUF_INIT(LIMIT_FRAME_BYTES);
    w->frame = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header));
    w->retry_ns = UINT64_MAX;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        w->due_ns[c] = UINT64_MAX;
    *out = w;
    return 0;
}

void dcgm_watch_free(struct dcgm_watch *w)
{
    if (!w)
        return;
    if (w->d->engine && !w->d->lost)
        dcgm_watch_take_down(w, &w->plan);
    dcgm_watch_forget(w);
    free(w->wanted_ids);
    buf_deinit(&w->records);
    buf_deinit(&w->strings);
    buf_deinit(&w->frame);
    free(w);
}

int dcgm_watch_set(struct dcgm_watch *w, const struct frame_watch *watch, const uint16_t *field_ids)
{
    // A counters file has no more rows.
    uint32_t count = watch->count < LIMIT_COUNTERS ? watch->count : LIMIT_COUNTERS;
    uint16_t *ids = calloc(count ? count : 1, sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    if (count)
        memcpy(ids, field_ids, count * sizeof(*ids));
    free(w->wanted_ids);
    w->wanted_ids = ids;
    w->wanted_count = count;
    w->wanted = *watch;
    return 0;
}

void dcgm_watch_forget(struct dcgm_watch *w)
{
    watch_plan_deinit(&w->plan);
    free(w->cells);
    free(w->fields);
    w->cells = NULL;
    w->fields = NULL;
    w->field_count = 0;
    w->applied = false;
    memset(w->unknown, 0, sizeof(w->unknown));
    w->retry_ns = UINT64_MAX;
}

bool dcgm_watch_is_of_engine(const struct dcgm_watch *w, dcgmReturn_t result)
{
    return w->d->lost || result == DCGM_ST_CONNECTION_NOT_VALID || result == DCGM_ST_UNINITIALIZED;
}

// --- applying ---

static enum field_class class_of(uint16_t field)
{
    const struct field_info *info = field_find(field);
    return info ? (enum field_class)info->cost : FIELD_CLASS_MEDIUM;
}

// The library's word on a field goes before the catalogue's: it may be newer, or older.
static struct watch_field describe(const struct dcgm_watch *w, uint16_t id)
{
    const struct field_info *info = field_find(id);
    const dcgm_field_meta_t *meta = NULL;
    struct watch_field f = {
        .id = id,
        .type = info ? info->type : FIELD_I64,
        .level = info ? info->level : FIELD_LEVEL_GPU,
        .cost = (uint8_t)class_of(id),
        .known = !w->d->fn.DcgmFieldGetById && info && !(w->unknown[id / 64] >> id % 64 & 1),
    };
    if (w->d->fn.DcgmFieldGetById)
        meta = w->d->fn.DcgmFieldGetById(id);
    if (!meta)
        return f;
    f.known = !(w->unknown[id / 64] >> id % 64 & 1);
    f.type = (uint8_t)dcgm_type_of(meta->fieldType, (enum field_type)f.type);
    if (meta->entityLevel >= DCGM_FE_NONE && meta->entityLevel <= DCGM_FE_CONNECTX)
        f.level = (uint8_t)meta->entityLevel;
    return f;
}

static int describe_all(const struct dcgm_watch *w, struct watch_field **out, uint32_t *out_count)
{
    struct watch_field *fields = calloc(w->wanted_count ? w->wanted_count : 1, sizeof(*fields));
    uint32_t count = 0;
    if (!fields)
        return -ENOMEM;
    for (uint32_t i = 0; i < w->wanted_count; i++)
        if (w->wanted_ids[i] < FIELD_EXP_FIRST)
            fields[count++] = describe(w, w->wanted_ids[i]);
    *out = fields;
    *out_count = count;
    return 0;
}

struct watch_input dcgm_watch_input(const struct dcgm_watch *w)
{
    return (struct watch_input){
        .devices = w->v,
        .fields = w->fields,
        .field_count = w->field_count,
        .profiling = &w->profiling,
        .gpus = w->watch.gpus,
        .entities_most = w->d->major < 4 ? WATCH_ENTITIES_MAX_3 : WATCH_ENTITIES_MAX_4,
    };
}

static bool wants_profiling(const struct dcgm_watch *w)
{
    for (uint32_t i = 0; i < w->wanted_count; i++)
        if (dcgm_field_is_profiling(w->wanted_ids[i]))
            return true;
    return false;
}

// Of each GPU that is watched and well.
static dcgmReturn_t ask_profiling(struct dcgm_watch *w, struct dcgm_profiling *out)
{
    *out = (struct dcgm_profiling){0};
    for (uint32_t i = 0; i < w->v->count && wants_profiling(w); i++) {
        const struct dcgm_entity *e = &w->v->list[i];
        struct watch_input in = {.devices = w->v, .gpus = w->wanted.gpus};
        if (e->group != DCGM_FE_GPU || !watch_wants_entity(&in, i) ||
            e->record.state == FRAME_ENTITY_LOST || e->record.state == FRAME_ENTITY_SKIPPED)
            continue;
        dcgmReturn_t result = dcgm_profiling_ask(w->d, out, e->id);
        if (dcgm_watch_is_of_engine(w, result))
            return result;
    }
    return DCGM_ST_OK;
}

static int make_cells(struct dcgm_watch *w, struct watch_plan *plan, struct watch_cell **out)
{
    struct watch_input in = dcgm_watch_input(w);
    struct watch_cell *cells = calloc(plan->cell_count ? plan->cell_count : 1, sizeof(*cells));
    if (!cells)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->entity_count; i++) {
        if (plan->cells[i] == WATCH_NONE)
            continue;
        unsigned kind = w->v->list[i].group;
        for (uint32_t row = 0; row < plan->kinds[kind].count; row++) {
            struct watch_cell *cell = &cells[plan->cells[i] + row];
            enum frame_status status;
            dcgmReturn_t result =
                watch_refusal(&in, i, &w->fields[watch_rows(plan, kind)[row]], &status);
            if (result == DCGM_ST_OK)
                continue;
            *cell =
                (struct watch_cell){.now = (uint8_t)(status + 1), .code = result, .settled = true};
        }
    }
    *out = cells;
    return 0;
}

static void schedule(struct dcgm_watch *w, uint64_t now_ns)
{
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        w->due_ns[c] = UINT64_MAX;
    for (uint32_t i = 0; i < w->wanted_count; i++)
        w->due_ns[class_of(w->wanted_ids[i])] = now_ns;
}

// The plan for what is wanted in place of the one before, nothing of it made yet; *out_old is what
// is to be taken down. Only memory can fail, and then all is as it was.
static int replace_plan(struct dcgm_watch *w, struct watch_plan *out_old)
{
    struct watch_plan *plan = &w->plan, old = *plan;
    struct watch_field *fields = NULL, *old_fields = w->fields;
    uint32_t field_count = 0, old_field_count = w->field_count;
    struct frame_watch old_watch = w->watch;
    struct watch_cell *cells = NULL;
    bool same_period[FIELD_CLASS_COUNT];
    if (describe_all(w, &fields, &field_count) < 0)
        return -ENOMEM;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        same_period[c] = w->wanted.period_ns[c] == w->watch.period_ns[c];
    w->fields = fields;
    w->field_count = field_count;
    w->watch = w->wanted;
    struct watch_input in = dcgm_watch_input(w);
    if (watch_plan_build(&in, plan) < 0 || make_cells(w, plan, &cells) < 0) {
        watch_plan_deinit(plan);
        *plan = old;
        free(fields);
        w->fields = old_fields;
        w->field_count = old_field_count;
        w->watch = old_watch;
        return -ENOMEM;
    }
    watch_plan_adopt(plan, &old, same_period);
    free(old_fields);
    free(w->cells);
    w->cells = cells;
    *out_old = old;
    return 0;
}

// What helps against a refusal, where anything does.
static const char *profiling_remedy(dcgmReturn_t result)
{
    return result == DCGM_ST_NO_PERMISSION || result == DCGM_ST_REQUIRES_ROOT
               ? ": give podgpu-exporter, or the host engine in use, CAP_SYS_ADMIN, or load the "
                 "driver with NVreg_RestrictProfilingToAdminUsers=0"
               : "";
}

static void tell_profiling(struct dcgm_watch *w)
{
    w->profiling_code = DCGM_ST_OK;
    for (uint32_t i = 0; i < w->profiling.count; i++)
        if (w->profiling.gpus[i].result != DCGM_ST_OK)
            w->profiling_code = w->profiling.gpus[i].result;
    for (uint32_t i = 0; i < w->plan.watch_count; i++)
        if (w->plan.watches[i].profiling && w->plan.watches[i].result != DCGM_ST_OK)
            w->profiling_code = w->plan.watches[i].result;
    if (w->profiling_code == w->told_code)
        return;
    w->told_code = w->profiling_code;
    if (w->told_code == DCGM_ST_OK) {
        log_info("profiling fields can be had now");
        return;
    }
    char reason[256];
    (void)snprintf(reason, sizeof(reason), "%s%s", dcgm_result_text(w->told_code),
                   profiling_remedy(w->told_code));
    log_warn("profiling fields cannot be had on some GPU", LOG_STR("reason", reason),
             LOG_I64("code", w->told_code));
}

// An entity that a group has not, because the engine did not take it.
static bool is_lacking(const struct dcgm_watch *w)
{
    for (uint32_t i = 0; i < w->plan.group_count; i++)
        if (w->plan.groups[i].lacking)
            return true;
    return false;
}

// What was refused is asked for again: soon and then ever later, as an engine that has just started
// says such things in passing; each minute where it belongs to somebody who may let go.
static void schedule_retries(struct dcgm_watch *w)
{
    bool any = w->profiling_code != DCGM_ST_OK || is_lacking(w);
    for (uint32_t i = 0; i < w->plan.watch_count; i++)
        any |= w->plan.watches[i].result != DCGM_ST_OK || w->plan.watches[i].partial;
    w->retry_ns = UINT64_MAX;
    for (unsigned i = 0; i < ARRAY_SIZE(w->again_ns) && any; i++)
        w->retry_ns = w->again_ns[i] < w->retry_ns ? w->again_ns[i] : w->retry_ns;
}

static void begin_retries(struct dcgm_watch *w, uint64_t now_ns)
{
    w->again_wait_ns = RETRY_LEAST_NS;
    w->again_ns[WATCH_AGAIN_UNMADE] = now_ns + w->again_wait_ns;
    w->again_ns[WATCH_AGAIN_HELD] = now_ns + RETRY_HELD_NS;
    w->again_ns[WATCH_AGAIN_ALL] = now_ns + RETRY_ALL_NS;
}

// What is asked for now, and when it will be the next time.
static enum watch_again take_retry(struct dcgm_watch *w, uint64_t now_ns)
{
    enum watch_again which = now_ns >= w->again_ns[WATCH_AGAIN_ALL]    ? WATCH_AGAIN_ALL
                             : now_ns >= w->again_ns[WATCH_AGAIN_HELD] ? WATCH_AGAIN_HELD
                                                                       : WATCH_AGAIN_UNMADE;
    if (which == WATCH_AGAIN_ALL)
        w->again_ns[WATCH_AGAIN_ALL] = now_ns + RETRY_ALL_NS;
    if (which >= WATCH_AGAIN_HELD)
        w->again_ns[WATCH_AGAIN_HELD] = now_ns + RETRY_HELD_NS;
    if (which == WATCH_AGAIN_HELD)
        return which;
    w->again_wait_ns = w->again_wait_ns < RETRY_ALL_NS / 2 ? 2 * w->again_wait_ns : RETRY_ALL_NS;
    w->again_ns[WATCH_AGAIN_UNMADE] = now_ns + w->again_wait_ns;
    return which;
}

// A plan in place of the one before, made in the engine.
static dcgmReturn_t apply_once(struct dcgm_watch *w)
{
    struct watch_plan old;
    if (replace_plan(w, &old) < 0)
        return DCGM_ST_MEMORY;
    if (w->plan.full)
        log_warn("more devices and fields than DCGM is asked for, some are left out",
                 LOG_LIMIT("full"));
    dcgm_watch_take_down(w, &old);
    watch_plan_deinit(&old);
    w->generation = w->v->generation;
    w->unsent = true;
    w->replan = false;
    dcgmReturn_t result = dcgm_watch_make(w);
    w->applied = result == DCGM_ST_OK;
    return result;
}

dcgmReturn_t dcgm_watch_apply(struct dcgm_watch *w)
{
    struct dcgm_profiling profiling;
    if (!w->wanted_ids)
        return DCGM_ST_OK;
    dcgmReturn_t result = ask_profiling(w, &profiling);
    if (result != DCGM_ST_OK)
        return result;
    w->profiling = profiling;
    for (unsigned i = 0; i < REPLANS_MAX && result == DCGM_ST_OK && (i == 0 || w->replan); i++)
        result = apply_once(w);
    if (result != DCGM_ST_OK)
        return result;
    tell_profiling(w);
    uint64_t now_ns = clock_mono_ns();
    schedule(w, now_ns);
    begin_retries(w, now_ns);
    schedule_retries(w);
    return DCGM_ST_OK;
}

// Groups that lack somebody are made anew with the plan.
static dcgmReturn_t make_again(struct dcgm_watch *w, enum watch_again which)
{
    uint64_t again_ns[ARRAY_SIZE(w->again_ns)], wait_ns = w->again_wait_ns;
    if (which == WATCH_AGAIN_HELD || !is_lacking(w))
        return dcgm_watch_make_again(w, which);
    memcpy(again_ns, w->again_ns, sizeof(again_ns));
    dcgmReturn_t result = dcgm_watch_apply(w);
    memcpy(w->again_ns, again_ns, sizeof(again_ns));
    w->again_wait_ns = wait_ns;
    return result;
}

dcgmReturn_t dcgm_watch_retry(struct dcgm_watch *w, uint64_t now_ns)
{
    if (now_ns < w->retry_ns)
        return DCGM_ST_OK;
    struct dcgm_profiling profiling;
    enum watch_again which = take_retry(w, now_ns);
    dcgmReturn_t result = ask_profiling(w, &profiling);
    if (result != DCGM_ST_OK)
        return result;
    if (!dcgm_profiling_is_equal(&profiling, &w->profiling))
        return dcgm_watch_apply(w);
    result = make_again(w, which);
    if (result != DCGM_ST_OK)
        return result;
    tell_profiling(w);
    schedule_retries(w);
    return DCGM_ST_OK;
}

// --- what the loop asks ---

uint64_t dcgm_watch_due_ns(const struct dcgm_watch *w)
{
    uint64_t due_ns = w->retry_ns;
    if (!w->applied || w->generation != w->v->generation)
        return UINT64_MAX;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        if (w->due_ns[c] < due_ns)
            due_ns = w->due_ns[c];
    return due_ns;
}

void dcgm_watch_resend(struct dcgm_watch *w)
{
    for (uint32_t i = 0; i < w->plan.cell_count && w->cells; i++)
        w->cells[i].sent = 0;
    w->unsent = true;
}

dcgmReturn_t dcgm_watch_profiling_code(const struct dcgm_watch *w)
{
    return w->profiling_code;
}

void dcgm_watch_set_paused(struct dcgm_watch *w, bool paused)
{
    if (w->paused && !paused && w->retry_ns != UINT64_MAX)
        w->retry_ns = w->again_ns[WATCH_AGAIN_HELD] = 0; // what was refused meanwhile
    w->paused = paused;
}

bool dcgm_watch_wants(const struct dcgm_watch *w, uint16_t field)
{
    for (uint32_t i = 0; i < w->wanted_count; i++)
        if (w->wanted_ids[i] == field)
            return true;
    return false;
}

uint32_t dcgm_watch_row_of(const struct dcgm_watch *w, unsigned kind, uint16_t field)
{
    const uint16_t *rows = watch_rows(&w->plan, kind);
    for (uint32_t i = 0; i < w->plan.kinds[kind].count; i++)
        if (w->fields[rows[i]].id == field)
            return i;
    return WATCH_NONE;
}
