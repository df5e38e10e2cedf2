// SPDX-License-Identifier: Apache-2.0
// How it works: what a pass finds goes through put(): values straight into the record buffer,
// statuses into the state table, from which sampler_frame sends those that the exporter does not
// know yet.
#include "source/sampler_internal.h"

#include <string.h>

#include "base/clock.h"
#include "source/nvml_call.h"

// --- what a pass finds ---

void sampler_add_record(struct sampler *s, uint32_t entity, uint16_t field,
                        const struct nvml_output *out, uint64_t taken_ns)
{
    struct frame_record record = {
        .entity = entity,
        .field = field,
        .status = (uint8_t)out->status,
        .type = (uint8_t)out->type,
        .taken_ns = taken_ns,
        .value.i64 = out->i64,
    };
    if (out->type == FRAME_VALUE_DOUBLE)
        record.value.f64 = out->f64;
    if (out->type == FRAME_VALUE_STRING) {
        record.value.i64 = (int64_t)((uint64_t)s->strings.len << 32 | out->text.len);
        buf_add_sv(&s->strings, out->text);
    }
    buf_add(&s->records, &record, sizeof(record));
    s->record_count++;
}

static void put(struct sampler *s, uint32_t entity, uint32_t row, const struct nvml_output *out,
                uint64_t taken_ns)
{
    struct sampler_state *state = sampler_state_at(s, entity, row);
    state->now = (uint8_t)(out->status + 1);
    state->code = out->status == FRAME_VENDOR_ERROR ? (int32_t)out->i64 : 0;
    if (out->status != FRAME_OK)
        return;
    state->was_ok = true;
    state->sent = FRAME_OK + 1;
    sampler_add_record(s, entity, s->rows[row].field, out, taken_ns);
}

void sampler_put_status(struct sampler *s, uint32_t entity, uint32_t row, enum frame_status status)
{
    put(s, entity, row, &(struct nvml_output){.status = status}, 0);
}

static bool is_settled(const struct sampler *s, uint32_t entity, uint32_t row)
{
    const struct sampler_state *state = sampler_state_at(s, entity, row);
    return state->now && nvml_status_is_final((enum frame_status)(state->now - 1));
}

// Whether the entity has a value of its own for the row, and it is worth asking.
static bool wants(const struct sampler *s, uint32_t entity, uint32_t row)
{
    const struct nvml_recipe *r = s->rows[row].recipe;
    if (!r || (!r->instance && !nvml_entity_is_gpu(&s->devices->list[entity])))
        return false;
    return !is_settled(s, entity, row);
}

// What a call's result means beyond the field. True: the GPU is gone, ask it no more in this pass.
static bool note_result(struct sampler *s, uint32_t entity, nvmlReturn_t result)
{
    if (result == NVML_SUCCESS)
        return false;
    s->suspect |= nvml_result_is_of_library(result);
    enum frame_entity_state state = nvml_state_of(result);
    if (state == FRAME_ENTITY_UP)
        return false;
    s->state_changed |= nvml_devices_mark(s->devices, entity, state);
    return state == FRAME_ENTITY_LOST;
}

// Counts, on the GPU, a call that was made. One that fails says nothing of the GPU when the failure
// is an answer.
static void note_answer(struct sampler *s, uint32_t entity, uint32_t calls_before,
                        nvmlReturn_t result)
{
    struct sampler_progress *p = &s->progress[s->devices->list[entity].record.parent];
    if (s->n->calls == calls_before)
        return;
    p->asked++;
    if (nvml_status_of(result) != FRAME_VENDOR_ERROR)
        p->answered++;
    if (result == NVML_SUCCESS)
        s->state_changed |= nvml_devices_mark(s->devices, entity, FRAME_ENTITY_UP);
}

// A handle of a MIG instance that is no more answers so; one that never gave the field answers so
// for ever.
static nvmlReturn_t judge_instance(struct sampler *s, uint32_t entity, uint32_t row,
                                   nvmlReturn_t result)
{
    bool bad = result == NVML_ERROR_INVALID_ARGUMENT || result == NVML_ERROR_NOT_FOUND ||
               result == NVML_ERROR_UNKNOWN;
    if (!bad || nvml_entity_is_gpu(&s->devices->list[entity]) ||
        !sampler_state_at(s, entity, row)->was_ok)
        return result;
    s->walk_wanted = true;
    return NVML_ERROR_NOT_FOUND;
}

// --- calls ---

static bool same_call(const struct sampler_row *a, const struct sampler_row *b)
{
    return b->recipe && a->recipe->getter == b->recipe->getter && a->recipe->arg == b->recipe->arg;
}

static bool any_wanted(const struct sampler *s, uint32_t entity, uint32_t first, uint32_t end)
{
    for (uint32_t row = first; row < end; row++)
        if (wants(s, entity, row))
            return true;
    return false;
}

// Rows first..end come from one call. False: the GPU is gone.
static bool read_call(struct sampler *s, uint32_t entity, uint32_t first, uint32_t end)
{
    struct nvml_getter_context c = {.n = s->n,
                                    .system = s->system,
                                    .entity = &s->devices->list[entity],
                                    .gpus = s->devices->gpus};
    const struct nvml_recipe *r = s->rows[first].recipe;
    struct nvml_reading reading;
    uint32_t calls = s->n->calls;
    nvml_get(&c, (enum nvml_getter)r->getter, r->arg, &reading);
    uint64_t taken_ns = clock_mono_ns();
    note_answer(s, entity, calls, reading.result);
    if (note_result(s, entity, reading.result))
        return false;
    reading.result = judge_instance(s, entity, first, reading.result);
    for (uint32_t row = first; row < end; row++) {
        if (!wants(s, entity, row))
            continue;
        struct nvml_output out;
        nvml_convert(s->rows[row].recipe, &reading, &out);
        put(s, entity, row, &out, taken_ns);
    }
    return true;
}

bool sampler_read_next_call(struct sampler *s, uint32_t entity, const struct sampler_class *c,
                            uint32_t *row)
{
    uint32_t end = c->first + c->count;
    for (uint32_t first = *row, next; first < end; first = next) {
        next = first + 1;
        if (!s->rows[first].recipe || s->rows[first].recipe->getter >= GETTER_CALL_COUNT)
            continue;
        while (next < end && same_call(&s->rows[first], &s->rows[next]))
            next++;
        if (!any_wanted(s, entity, first, next))
            continue;
        *row = next;
        return read_call(s, entity, first, next);
    }
    *row = end;
    return true;
}

// --- field values ---

static struct nvml_value values[NVML_FIELD_VALUES_MAX]; // of the bulk call in progress

// Fills values with what the wanted rows need; places[] says where each of the class's values went.
static uint32_t collect_values(const struct sampler *s, uint32_t entity,
                               const struct sampler_class *c,
                               uint16_t places[NVML_FIELD_VALUES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->value_count; i++)
        places[i] = SAMPLER_NO_VALUE;
    for (uint32_t row = c->first; row < c->first + c->count; row++) {
        for (unsigned k = 0; k < 2; k++) {
            uint16_t at = s->rows[row].value[k];
            if (at == SAMPLER_NO_VALUE || places[at] != SAMPLER_NO_VALUE || !wants(s, entity, row))
                continue;
            places[at] = (uint16_t)count;
            values[count++] = (struct nvml_value){.id = c->values[at].id,
                                                  .scope = c->values[at].scope,
                                                  .expect = c->values[at].expect};
        }
    }
    return count;
}

static void put_rate(struct sampler *s, uint32_t entity, uint32_t row,
                     const struct nvml_value *parts[2], uint64_t taken_ns)
{
    const struct nvml_recipe *r = s->rows[row].recipe;
    uint64_t kib = 0;
    int64_t driver_us = 0;
    struct nvml_output out = {0};
    for (unsigned k = 0; k < 2; k++) {
        if (!parts[k])
            continue;
        if (parts[k]->result != NVML_SUCCESS) {
            out = (struct nvml_output){.status = nvml_status_of(parts[k]->result),
                                       .i64 = parts[k]->result};
            put(s, entity, row, &out, taken_ns);
            return;
        }
        kib += parts[k]->number;
        driver_us = parts[k]->driver_us > driver_us ? parts[k]->driver_us : driver_us;
    }
    struct nvml_rate *rate = nvml_rates_get(&s->devices->list[entity].rates, r->arg,
                                            (enum nvml_nvlink_direction)r->pick);
    if (rate && nvml_rate_update(rate, kib, taken_ns, driver_us, &out.i64))
        out.type = FRAME_VALUE_I64;
    else
        out.status = FRAME_NO_DATA;
    put(s, entity, row, &out, taken_ns);
}

static void put_value(struct sampler *s, uint32_t entity, uint32_t row,
                      const struct nvml_value *value, uint64_t taken_ns)
{
    const struct nvml_recipe *r = s->rows[row].recipe;
    struct nvml_reading reading = {
        .result = value->result, .number[0] = value->number, .real = value->real};
    struct nvml_recipe first = *r;
    first.pick = 0; // of a field value it says what to expect
    struct nvml_output out;
    nvml_convert(&first, &reading, &out);
    put(s, entity, row, &out, taken_ns);
}

static void put_values(struct sampler *s, uint32_t entity, const struct sampler_class *c,
                       const uint16_t *places, uint64_t taken_ns)
{
    for (uint32_t row = c->first; row < c->first + c->count; row++) {
        const struct sampler_row *r = &s->rows[row];
        if ((r->value[0] == SAMPLER_NO_VALUE && r->value[1] == SAMPLER_NO_VALUE) ||
            !wants(s, entity, row))
            continue;
        const struct nvml_value *parts[2] = {NULL, NULL};
        for (unsigned k = 0; k < 2; k++)
            if (r->value[k] != SAMPLER_NO_VALUE)
                parts[k] = &values[places[r->value[k]]];
        if (r->recipe->getter == GETTER_NVLINK_RATE)
            put_rate(s, entity, row, parts, taken_ns);
        else
            put_value(s, entity, row, parts[0], taken_ns);
    }
}

bool sampler_read_values(struct sampler *s, uint32_t entity, const struct sampler_class *c)
{
    uint16_t places[NVML_FIELD_VALUES_MAX];
    uint32_t count = collect_values(s, entity, c, places);
    if (!count)
        return true;
    const struct nvml_entity *e = &s->devices->list[entity];
    uint32_t calls = s->n->calls;
    nvmlReturn_t result =
        nvml_field_values_get(s->n, s->field_values, e->device, e->record.index, values, count);
    uint64_t taken_ns = clock_mono_ns();
    note_answer(s, entity, calls, result);
    if (note_result(s, entity, result))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (result != NVML_SUCCESS)
            values[i].result = result;
        else if (note_result(s, entity, values[i].result))
            return false;
    }
    put_values(s, entity, c, places, taken_ns);
    return true;
}

// --- GPM ---

static void put_metrics(struct sampler *s, uint32_t entity, const uint32_t *rows,
                        const struct nvml_gpm_value *metrics, uint32_t count, uint64_t taken_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        struct nvml_reading reading = {.result = metrics[i].result, .real = metrics[i].value};
        struct nvml_output out;
        nvml_convert(s->rows[rows[i]].recipe, &reading, &out);
        put(s, entity, rows[i], &out, taken_ns);
    }
}

static struct nvml_gpm_target gpm_target(const struct nvml_devices *d, uint32_t entity)
{
    const struct nvml_entity *e = &d->list[entity];
    bool gpu = nvml_entity_is_gpu(e);
    return (struct nvml_gpm_target){
        .device = gpu ? e->device : d->list[e->record.parent].device,
        .mig_gi = gpu ? UINT32_MAX : e->record.gpu_instance_id,
        .gpu_index = e->record.index,
    };
}

static uint32_t collect_metrics(struct sampler *s, uint32_t entity, const struct sampler_class *c,
                                uint32_t *rows, struct nvml_gpm_value *metrics)
{
    uint32_t count = 0;
    for (uint32_t row = c->first; row < c->first + c->count && count < NVML_GPM_WANTED_MAX; row++) {
        if (!s->rows[row].recipe || s->rows[row].recipe->getter != GETTER_GPM ||
            !wants(s, entity, row))
            continue;
        if (!s->devices->list[entity].record.gpm) {
            sampler_put_status(s, entity, row, FRAME_NEEDS_GPM);
            continue;
        }
        rows[count] = row;
        metrics[count++] = (struct nvml_gpm_value){.metric = s->rows[row].recipe->arg};
    }
    return count;
}

bool sampler_read_gpm(struct sampler *s, uint32_t entity, const struct sampler_class *c)
{
    uint32_t rows[NVML_GPM_WANTED_MAX];
    struct nvml_gpm_value metrics[NVML_GPM_WANTED_MAX];
    uint32_t count = collect_metrics(s, entity, c, rows, metrics);
    if (!count)
        return true;
    struct nvml_gpm_target target = gpm_target(s->devices, entity);
    struct nvml_gpm *gpm = &s->devices->list[entity].gpm;
    uint32_t calls = s->n->calls;
    nvmlReturn_t result = nvml_gpm_read(s->n, gpm, &target, clock_mono_ns(), metrics, count);
    note_answer(s, entity, calls, result);
    if (note_result(s, entity, result))
        return false;
    if (gpm->base_ns && result != NVML_SUCCESS) // the last one begun is ripe last
        s->ripe_ns = gpm->base_ns + NVML_GPM_LEAST_NS;
    if (result == NVML_ERROR_NOT_READY)
        return true;
    if (result != NVML_SUCCESS)
        result = judge_instance(s, entity, rows[0], result);
    for (uint32_t i = 0; result != NVML_SUCCESS && i < count; i++)
        metrics[i].result = result;
    put_metrics(s, entity, rows, metrics, count, clock_mono_ns());
    return true;
}

// --- XID ---

void sampler_read_xid(struct sampler *s, uint32_t entity, const struct sampler_class *c)
{
    bool armed =
        s->kmsg_armed || s->devices->list[s->devices->list[entity].record.parent].xid_armed;
    for (uint32_t row = c->first; row < c->first + c->count; row++) {
        if (!s->rows[row].recipe || s->rows[row].recipe->getter != GETTER_XID)
            continue;
        uint32_t last = xid_board_last(s->board, entity);
        struct nvml_output out = {.status = FRAME_NO_DATA};
        if (armed || last)
            out = (struct nvml_output){.status = FRAME_OK, .type = FRAME_VALUE_I64, .i64 = last};
        put(s, entity, row, &out, clock_mono_ns());
    }
}
