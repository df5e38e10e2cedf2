// SPDX-License-Identifier: Apache-2.0
// The verbs: one table, each verb a function of a time and its words.
#include "command_internal.h"

#include <errno.h>

#include "base/num.h"

// The value of word `key=value`, NULL pointer when it isn't there.
struct sv command_word(const struct command *w, const char *key)
{
    struct sv name = sv_from(key);
    for (size_t i = 0; i < w->count; i++) {
        struct sv s = w->list[i];
        if (s.len > name.len && sv_starts_with(s, name) && s.ptr[name.len] == '=')
            return sv_sub(s, name.len + 1, s.len);
    }
    return (struct sv){NULL, 0};
}

bool command_has(const struct command *w, const char *exact)
{
    for (size_t i = 0; i < w->count; i++) {
        if (sv_equals(w->list[i], sv_from(exact)))
            return true;
    }
    return false;
}

int command_number(const struct command *w, const char *key, int64_t fallback, int64_t *out,
                   struct error *err)
{
    struct sv text = command_word(w, key);
    *out = fallback;
    if (!text.ptr)
        return 0;
    if (num_parse_i64(text, INT64_MIN, INT64_MAX, out) != 0)
        return error_set(err, -EINVAL, "%s: expected a number, found '%.*s'", key, SV_FMT(text));
    return 0;
}

// gpu=N; required unless fallback is allowed.
int command_gpu(const struct sim_node *n, const struct command *w, bool required, uint32_t *out,
                struct error *err)
{
    int64_t gpu;
    int rc = command_number(w, "gpu", -1, &gpu, err);
    if (rc < 0)
        return rc;
    if (gpu < 0 && !required) {
        *out = SIM_NONE;
        return 0;
    }
    if (gpu < 0 || gpu >= n->gpu_count)
        return error_set(err, -EINVAL, "expected gpu=N below %u", n->gpu_count);
    *out = (uint32_t)gpu;
    return 0;
}

uint32_t command_process(const struct sim_node *n, struct sv pid_text, int64_t at)
{
    uint64_t pid;
    if (num_parse_u64(pid_text, 1, UINT32_MAX, &pid) != 0)
        return SIM_NONE;
    for (uint32_t i = n->process_count; i-- > 0;) {
        if (n->processes[i].pid == pid && atomic_load(&n->processes[i].end_ns) > at)
            return i;
    }
    return SIM_NONE;
}

// --- set NAME=VALUE ... ---

int command_set_load(struct sim_node *n, _Atomic uint32_t *list, struct sv value, int64_t at,
                     struct error *err)
{
    struct sim_load l;
    int rc = sim_parse_load(value, &l, err);
    l.from_ns = at;
    return rc < 0 ? rc : sim_add_load(n, list, &l, err);
}

static int set_signal(struct sim_node *n, uint32_t gpu, struct sv name, struct sv value, int64_t at,
                      struct error *err)
{
    enum sim_field field = sim_parse_field(name);
    if (field == SIM_FIELD_COUNT)
        return error_set(err, -EINVAL, "no signal '%.*s'", SV_FMT(name));
    struct sim_segment s;
    int rc = sim_parse_signal(value, sim_field_table[field].kind, &s, err);
    s.from_ns = at;
    return rc < 0 ? rc : sim_add_segment(n, gpu, field, &s, err);
}

static int set_version(char *out, size_t out_bytes, struct sv value)
{
    sv_copy(out, out_bytes, value);
    return 0;
}

static int set_one(struct sim_node *n, int64_t at, struct sv assignment, struct error *err)
{
    struct sv value = assignment, name, head;
    if (!sv_next(&value, '=', &name) || name.len == assignment.len)
        return error_set(err, -EINVAL, "expected NAME=VALUE, found '%.*s'", SV_FMT(assignment));
    struct sv rest = name;
    (void)sv_next(&rest, '.', &head);
    if (sv_equals(name, SV("driver.version")))
        return set_version(n->driver_version, sizeof(n->driver_version), value);
    if (sv_equals(head, SV("process"))) {
        struct sv pid;
        (void)sv_next(&rest, '.', &pid);
        uint32_t process = command_process(n, pid, at);
        if (process == SIM_NONE || !sv_equals(rest, SV("load")))
            return error_set(err, -EINVAL, "no such process or property in '%.*s'", SV_FMT(name));
        return command_set_load(n, &n->processes[process].load, value, at, err);
    }
    uint32_t gpu = sim_parse_gpu(n, head);
    if (gpu == SIM_NONE)
        return set_signal(n, SIM_NODE, name, value, at, err);
    if (sv_equals(rest, SV("load")))
        return command_set_load(n, &n->gpus[gpu].load, value, at, err);
    return set_signal(n, gpu, rest, value, at, err);
}

static int verb_set(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                    struct error *err)
{
    int rc = w->count == 0 ? error_set(err, -EINVAL, "set NAME=VALUE ...") : 0;
    for (size_t i = 0; i < w->count && rc == 0; i++)
        rc = set_one(n, at, w->list[i], err);
    return rc;
}

static int verb_get(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                    struct error *err)
{
    for (size_t i = 0; i < w->count; i++) {
        struct sv rest = w->list[i], head;
        (void)sv_next(&rest, '.', &head);
        uint32_t gpu = sim_parse_gpu(n, head);
        enum sim_field field = sim_parse_field(gpu == SIM_NONE ? w->list[i] : rest);
        if (field == SIM_FIELD_COUNT)
            return error_set(err, -EINVAL, "no signal '%.*s'", SV_FMT(w->list[i]));
        double value;
        int code = sim_truth_double(n, gpu == SIM_NONE ? SIM_NODE : gpu, field, at, &value);
        if (code == 0)
            buf_add_fmt(out, "%.*s %.6f\n", SV_FMT(w->list[i]), value);
        else
            buf_add_fmt(out, "%.*s error %d\n", SV_FMT(w->list[i]), code);
    }
    return 0;
}

// --- xid gpu=N code=N [gi=N] [ci=N] [only=nvml|kmsg] [type=BIT] ---
static int verb_xid(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                    struct error *err)
{
    int64_t code, gi, ci, type;
    struct sim_event e = {.at_ns = at, .flags = SIM_EVENT_NVML | SIM_EVENT_KMSG};
    int rc = command_gpu(n, w, true, &e.gpu, err);
    if (rc == 0)
        rc = command_number(w, "code", -1, &code, err);
    if (rc == 0 && code < 0)
        rc = error_set(err, -EINVAL, "xid gpu=N code=N [gi=N] [ci=N] [only=nvml|kmsg] [type=BIT]");
    if (rc == 0)
        rc = command_number(w, "gi", UINT32_MAX, &gi, err);
    if (rc == 0)
        rc = command_number(w, "ci", UINT32_MAX, &ci, err);
    if (rc == 0)
        rc = command_number(w, "type", 8, &type, err);
    if (rc < 0)
        return rc;
    if (sv_equals(command_word(w, "only"), SV("nvml")) || type != 8)
        e.flags = SIM_EVENT_NVML;
    else if (sv_equals(command_word(w, "only"), SV("kmsg")))
        e.flags = SIM_EVENT_KMSG;
    e.type = (uint64_t)type;
    e.data = (uint64_t)code;
    e.gi = (uint32_t)gi;
    e.ci = (uint32_t)ci;
    rc = sim_add_event(n, &e, err);
    if (rc == 0)
        sim_event_wake(n);
    return rc;
}

// --- counts [reset] ---
static int verb_counts(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                       struct error *err)
{
    bool reset = command_has(w, "reset");
    for (uint32_t i = 0; i < n->symbol_count; i++) {
        struct sim_symbol *s = &n->symbols[i];
        uint64_t calls = atomic_load(&s->calls);
        if (calls > 0 && !reset)
            buf_add_fmt(out, "%s %llu %llu\n", s->name, (unsigned long long)calls,
                        (unsigned long long)atomic_load(&s->total_ns));
        if (reset) {
            atomic_store(&s->calls, 0);
            atomic_store(&s->total_ns, 0);
        }
    }
    return 0;
}

// --- mig gpu=N layout=3g.40gb,1g.10gb:1c | layout=off; reset gpu=N; clock ... ---

static int refuse_in_use(struct sim_node *n, uint32_t gpu, struct error *err)
{
    uint32_t pid = sim_client_holding(n, gpu);
    return pid == 0 ? 0 : error_set(err, -EBUSY, "GPU %u is in use by process %u", gpu, pid);
}

static int verb_mig(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                    struct error *err)
{
    uint32_t gpu;
    int rc = command_gpu(n, w, true, &gpu, err);
    struct sv layout = command_word(w, "layout");
    if (rc == 0 && !layout.ptr)
        rc = error_set(err, -EINVAL, "mig gpu=N layout=3g.40gb,1g.10gb | layout=off [force]");
    bool mode_changes = rc == 0 && (sim_truth_or_zero(n, gpu, SIM_MIG_MODE, at) != 0) ==
                                       sv_equals(layout, SV("off"));
    if (rc == 0 && mode_changes && !command_has(w, "force"))
        rc = refuse_in_use(n, gpu, err);
    if (rc == 0)
        rc = sim_add_layout(n, gpu, layout, at, err);
    if (rc < 0)
        return rc;
    struct sim_event e = {.at_ns = at,
                          .type = 0x100,
                          .gpu = gpu,
                          .gi = UINT32_MAX,
                          .ci = UINT32_MAX,
                          .flags = SIM_EVENT_NVML};
    rc = sim_add_event(n, &e, err);
    if (rc == 0)
        sim_event_wake(n);
    return rc;
}

// What a reset clears: the loss, the need for a reset, the counters since driver load.
static int verb_reset(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                      struct error *err)
{
    static const enum sim_field cleared[] = {
        SIM_LOST,          SIM_RESET_REQUIRED,  SIM_ECC_SBE_VOL,    SIM_ECC_DBE_VOL,
        SIM_REMAP_PENDING, SIM_RETIRED_PENDING, SIM_RECOVERY_ACTION};
    uint32_t gpu;
    int rc = command_gpu(n, w, true, &gpu, err);
    if (rc == 0)
        rc = refuse_in_use(n, gpu, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(cleared); i++) {
        int64_t now;
        if (sim_truth(n, gpu, cleared[i], at, &now) == 0 && now != 0)
            rc = sim_add_segment(n, gpu, cleared[i], &(struct sim_segment){.from_ns = at}, err);
    }
    int64_t energy;
    if (rc == 0 && sim_truth(n, gpu, SIM_ENERGY, at, &energy) == 0) {
        struct sim_segment s = {.from_ns = at, .flags = SIM_SEGMENT_FOLLOWS_POWER};
        rc = sim_add_segment(n, gpu, SIM_ENERGY, &s, err);
    }
    return rc;
}

// clock | clock freeze=TIME | clock add=TIME (while frozen) | clock run (goes on from the frozen
// time)
static int verb_clock(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                      struct error *err)
{
    struct sv freeze = command_word(w, "freeze"), add = command_word(w, "add");
    int64_t t, frozen = atomic_load(&n->frozen_ns);
    if (w->count == 0) {
        buf_add_fmt(out, "%lld\n", (long long)sim_now(n));
        return 0;
    }
    int rc = 0;
    if (freeze.ptr) {
        rc = sim_parse_time(freeze, &t, err);
    } else if (add.ptr && frozen != INT64_MIN) {
        rc = sim_parse_time(add, &t, err);
        t += frozen;
    } else if (command_has(w, "run")) {
        if (frozen != INT64_MIN) {
            atomic_store(&n->frozen_ns, INT64_MIN);
            n->epoch_ns +=
                (int64_t)((sim_wide)(sim_now(n) - frozen) * SIM_PPM / (int64_t)n->rate_ppm);
        }
        return 0;
    } else {
        return error_set(err, -EINVAL, "clock [freeze=TIME | add=TIME while frozen | run]");
    }
    if (rc == 0) {
        atomic_store(&n->frozen_ns, t);
        sim_event_wake(n);
    }
    return rc;
}

static int verb_holders(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                        struct error *err)
{
    uint32_t gpu = SIM_NONE;
    int rc = command_gpu(n, w, false, &gpu, err);
    if (rc == 0)
        buf_add_fmt(out, "%u\n", sim_client_holding(n, gpu));
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
               struct error *err);
} verbs[] = {
    {"set", verb_set},
    {"get", verb_get},
    {"fault", command_fault_verb},
    {"crash", command_crash_verb},
    {"dcgm", command_dcgm_verb},
    {"xid", verb_xid},
    {"counts", verb_counts},
    {"pods", command_pods_verb},
    {"process", command_process_verb},
    {"mig", verb_mig},
    {"reset", verb_reset},
    {"clock", verb_clock},
    {"holders", verb_holders},
};

int sim_command(struct sim_node *n, int64_t at, size_t argc, const struct sv *argv, struct buf *out,
                struct error *err)
{
    if (argc == 0)
        return error_set(err, -EINVAL, "expected a verb");
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (sv_equals(argv[0], sv_from(verbs[i].name)))
            return verbs[i].run(n, at, &(struct command){argc - 1, argv + 1}, out, err);
    }
    return error_set(err, -EINVAL, "unknown verb '%.*s'", SV_FMT(argv[0]));
}

int sim_command_line(struct sim_node *n, int64_t at, struct sv line, struct buf *out,
                     struct error *err)
{
    struct sv list[COMMAND_MAX_WORDS], piece;
    size_t count = 0;
    while (sv_next(&line, ' ', &piece)) {
        if (piece.len == 0)
            continue;
        if (count == COMMAND_MAX_WORDS)
            return error_set(err, -EINVAL, "more than %d words", COMMAND_MAX_WORDS);
        list[count++] = piece;
    }
    return sim_command(n, at, count, list, out, err);
}
