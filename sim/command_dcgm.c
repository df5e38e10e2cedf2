// SPDX-License-Identifier: Apache-2.0
// Verbs about what only DCGM tells: dcgm set ENTITY.FIELD=VALUE ... | dcgm set
// ENTITY/linkN.state=up | dcgm xid gpu=N code=N | dcgm health gpu=N|entity=E system=THERMAL
// [result=20] [code=N] [text=T] | dcgm health clear | dcgm peer gpu0 gpu1 STATE | dcgm pause
#include "command_internal.h"

#include <errno.h>

#include "base/num.h"

static int set_state(struct sim_node *n, uint32_t entity, uint32_t key, struct sv value,
                     struct error *err)
{
    struct sim_link *link = entity == SIM_ENTITY_LINK ? sim_find_link(n, key) : NULL;
    uint32_t state;
    if (!link)
        return error_set(err, -EINVAL, "no such link");
    int rc = sim_parse_link_state(value, &state, err);
    if (rc == 0)
        atomic_store(&link->state, state);
    return rc;
}

static int set_one(struct sim_node *n, int64_t at, struct sv name, struct sv value,
                   struct error *err)
{
    struct sv field = name, entity;
    struct sim_dcgm_value v = {.from_ns = at};
    uint64_t id;
    (void)sv_next(&field, '.', &entity);
    int rc = sim_parse_entity(entity, &v.entity, &v.key, err);
    if (rc == 0 && sv_equals(field, SV("state")))
        return set_state(n, v.entity, v.key, value, err);
    if (rc == 0 && num_parse_u64(field, 1, UINT16_MAX, &id) != 0)
        rc = error_set(err, -EINVAL, "expected ENTITY.FIELD_ID, found '%.*s'", SV_FMT(name));
    if (rc == 0)
        rc = sim_parse_dcgm_value(n, value, &v, err);
    if (rc < 0)
        return rc;
    v.field = (uint32_t)id;
    return sim_add_dcgm_value(n, &v, err);
}

// "status -14" is two words of the line.
static int verb_set(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    int rc = w->count == 0 ? error_set(err, -EINVAL, "dcgm set ENTITY.FIELD=VALUE ...") : 0;
    for (size_t i = 0; rc == 0 && i < w->count; i++) {
        struct sv value = w->list[i], name;
        if (!sv_next(&value, '=', &name) || name.len == w->list[i].len)
            return error_set(err, -EINVAL, "expected NAME=VALUE, found '%.*s'", SV_FMT(value));
        if (sv_equals(value, SV("status")) && i + 1 < w->count) {
            const char *end = w->list[i + 1].ptr + w->list[i + 1].len;
            value.len = (size_t)(end - value.ptr); // both words stand in one line
            i++;
        }
        rc = set_one(n, at, name, value, err);
    }
    return rc;
}

static int clear_incidents(struct sim_node *n, int64_t at)
{
    for (uint32_t i = 0; i < atomic_load(&n->dcgm.incident_count); i++) {
        if (atomic_load(&n->dcgm.incidents[i].until_ns) > at)
            atomic_store(&n->dcgm.incidents[i].until_ns, at);
    }
    return 0;
}

static int verb_health(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    struct sim_incident x = {.from_ns = at, .until_ns = SIM_FOREVER, .entity = SIM_ENTITY_GPU};
    struct sv system = command_word(w, "system"), entity = command_word(w, "entity"),
              text = command_word(w, "text");
    int64_t result, code;
    if (command_has(w, "clear"))
        return clear_incidents(n, at);
    if (!system.ptr)
        return error_set(err, -EINVAL,
                         "dcgm health gpu=N|entity=E system=THERMAL [result=10|20] [code=N]");
    int rc = entity.ptr ? sim_parse_entity(entity, &x.entity, &x.key, err)
                        : command_gpu(n, w, true, &x.key, err);
    if (rc == 0)
        rc = sim_parse_health_system(system, &x.system, err);
    if (rc == 0)
        rc = command_number(w, "result", 20, &result, err);
    if (rc == 0)
        rc = command_number(w, "code", 0, &code, err);
    if (rc == 0)
        rc = sim_add_string(n, text.ptr ? text : SV("simulated incident"), &x.text, err);
    if (rc < 0)
        return rc;
    x.result = (uint32_t)result;
    x.code = (uint32_t)code;
    return sim_add_incident(n, &x, err);
}

static int verb_peer(struct sim_node *n, const struct command *w, struct error *err)
{
    uint64_t state;
    if (w->count != 3 || num_parse_u64(w->list[2], 0, 6, &state) != 0)
        return error_set(err, -EINVAL, "dcgm peer gpu0 gpu1 STATE (0..6)");
    uint32_t a = sim_parse_gpu(n, w->list[0]), b = sim_parse_gpu(n, w->list[1]);
    if (a == SIM_NONE || b == SIM_NONE)
        return error_set(err, -EINVAL, "no such GPU");
    atomic_store(&n->dcgm.peers[a][b], (uint32_t)state);
    return 0;
}

int command_dcgm_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                      struct error *err)
{
    struct command rest = {w->count ? w->count - 1 : 0, w->list + 1};
    struct sv what = w->count ? w->list[0] : SV("");
    if (sv_equals(what, SV("set")))
        return verb_set(n, at, &rest, err);
    if (sv_equals(what, SV("xid"))) // the same event as NVML's
        return sim_command(n, at, w->count, w->list, out, err);
    if (sv_equals(what, SV("health")))
        return verb_health(n, at, &rest, err);
    if (sv_equals(what, SV("peer")))
        return verb_peer(n, &rest, err);
    if (!sv_equals(what, SV("pause")))
        return error_set(err, -EINVAL, "dcgm set | xid | health | peer | pause");
    buf_add_fmt(out, "%u\n", atomic_load(&n->dcgm.paused));
    return 0;
}
