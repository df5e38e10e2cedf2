// SPDX-License-Identifier: Apache-2.0
// Values as scenarios and verbs write them: signals, loads, times, devices.
#include "node_edit.h"

#include <errno.h>
#include <math.h>

#include "base/num.h"

static struct sv trim(struct sv s)
{
    return sv_trim(s, " \t");
}

// "22731MiB" -> number and factor.
static int64_t take_unit(struct sv *s)
{
    static const struct {
        const char *name;
        int64_t factor;
    } units[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!sv_ends_with(*s, sv_from(units[i].name)))
            continue;
        s->len -= 3;
        *s = trim(*s);
        return units[i].factor;
    }
    return 1;
}

// A number in micro-units; whole ones are exact over the entire range.
static int parse_micro(struct sv text, int64_t *out, struct error *err)
{
    struct sv s = trim(text);
    int64_t factor = take_unit(&s) * 1000000;
    int64_t whole;
    double value;
    if (num_parse_i64(s, INT64_MIN, INT64_MAX, &whole) == 0) {
        if (__builtin_mul_overflow(whole, factor, out))
            return error_set(err, -EINVAL, "number '%.*s' is too large", SV_FMT(text));
        return 0;
    }
    if (num_parse_double(s, &value) != 0 || fabs(value * (double)factor) > 9e18)
        return error_set(err, -EINVAL, "expected a number, found '%.*s'", SV_FMT(text));
    *out = llround(value * (double)factor);
    return 0;
}

static bool strip_suffix(struct sv *s, struct sv suffix)
{
    if (!sv_ends_with(*s, suffix))
        return false;
    s->len -= suffix.len;
    *s = trim(*s);
    return true;
}

static int parse_term(struct sv term, enum sim_kind kind, struct sim_segment *out,
                      struct error *err)
{
    struct sv s = trim(term);
    if (sv_equals(s, SV("power")) && kind == SIM_COUNTER) {
        out->flags |= SIM_SEGMENT_FOLLOWS_POWER;
        return 0;
    }
    bool per_second = strip_suffix(&s, SV("/s"));
    bool of_load = strip_suffix(&s, SV("*load"));
    if (per_second != (kind == SIM_COUNTER) && (per_second || of_load))
        return error_set(err, -EINVAL, "'%.*s' doesn't fit: %s", SV_FMT(term),
                         per_second ? "only counters grow per second"
                                    : "a counter's load term ends in /s");
    int64_t value = 0;
    int rc = parse_micro(s, &value, err);
    if (rc < 0)
        return rc;
    if (of_load)
        out->slope += value;
    else if (per_second)
        out->rate += value;
    else
        out->base += value;
    return 0;
}

int sim_parse_signal(struct sv text, enum sim_kind kind, struct sim_segment *out, struct error *err)
{
    struct sim_segment s = {0};
    struct sv rest = trim(text), term;
    if (sv_equals(rest, SV("unsupported"))) {
        s.status = 3;
        *out = s;
        return 0;
    }
    if (sv_starts_with(rest, SV("error"))) {
        uint64_t code;
        if (num_parse_u64(trim(sv_sub(rest, 5, rest.len)), 1, 999, &code) != 0)
            return error_set(err, -EINVAL, "expected 'error CODE', found '%.*s'", SV_FMT(text));
        s.status = (uint32_t)code;
        *out = s;
        return 0;
    }
    if (rest.len == 0)
        return error_set(err, -EINVAL, "expected a value");
    while (sv_next(&rest, '+', &term)) {
        int rc = parse_term(term, kind, &s, err);
        if (rc < 0)
            return rc;
    }
    *out = s;
    return 0;
}

int sim_parse_time(struct sv text, int64_t *out_ns, struct error *err)
{
    uint64_t ns;
    if (num_parse_duration_go(trim(text), &ns) != 0 || ns > INT64_MAX / 4)
        return error_set(err, -EINVAL, "expected a time such as 90s or 1h30m, found '%.*s'",
                         SV_FMT(text));
    *out_ns = (int64_t)ns;
    return 0;
}

static int parse_level(struct sv text, uint32_t *out_ppm, struct error *err)
{
    double value;
    if (num_parse_double(trim(text), &value) != 0 || value < 0 || value > 1)
        return error_set(err, -EINVAL, "a load is a number from 0 to 1, found '%.*s'",
                         SV_FMT(text));
    *out_ppm = (uint32_t)llround(value * 1e6);
    return 0;
}

struct load_words {
    struct sim_load load;
    int64_t every_ns;
};

static int parse_load_word(struct sv key, struct sv value, struct load_words *w, struct error *err)
{
    struct {
        const char *name;
        int64_t *at;
    } times[] = {{"on", &w->load.on_ns},
                 {"off", &w->load.off_ns},
                 {"phase", &w->load.phase_ns},
                 {"width", &w->load.width_ns},
                 {"every", &w->every_ns}};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        if (sv_equals(key, sv_from(times[i].name)))
            return sim_parse_time(value, times[i].at, err);
    }
    if (sv_equals(key, SV("high")))
        return parse_level(value, &w->load.high_ppm, err);
    if (sv_equals(key, SV("low")))
        return parse_level(value, &w->load.low_ppm, err);
    if (sv_equals(key, SV("pulses"))) {
        uint64_t pulses;
        if (num_parse_u64(value, 1, 1000000, &pulses) != 0)
            return error_set(err, -EINVAL, "pulses: expected 1 or more, found '%.*s'",
                             SV_FMT(value));
        w->load.pulses = (uint32_t)pulses;
        return 0;
    }
    return error_set(err, -EINVAL, "unknown word '%.*s' in a load", SV_FMT(key));
}

static int check_load(struct load_words *w, struct sv text, struct error *err)
{
    struct sim_load *l = &w->load;
    if (l->shape == SIM_SQUARE) {
        if (l->on_ns <= 0 || l->off_ns <= 0)
            return error_set(err, -EINVAL, "'%.*s': a square wave needs on and off", SV_FMT(text));
        return 0;
    }
    if (l->width_ns <= 0 || l->pulses == 0)
        return error_set(err, -EINVAL, "'%.*s': bursts need every, width and pulses", SV_FMT(text));
    l->on_ns = l->width_ns * 2 * l->pulses;
    l->off_ns = w->every_ns - l->on_ns;
    if (l->off_ns < 0)
        return error_set(err, -EINVAL, "'%.*s': the pulses and their gaps don't fit the period",
                         SV_FMT(text));
    return 0;
}

int sim_parse_load(struct sv text, struct sim_load *out, struct error *err)
{
    struct load_words w = {.load = {.shape = SIM_CONSTANT, .high_ppm = SIM_PPM}};
    struct sv rest = trim(text), head, word;
    if (!sv_next(&rest, ':', &head))
        return error_set(err, -EINVAL, "expected a load");
    if (sv_equals(head, SV("square"))) {
        w.load.shape = SIM_SQUARE;
    } else if (sv_equals(head, SV("bursts"))) {
        w.load.shape = SIM_BURSTS;
    } else {
        int rc = parse_level(text, &w.load.high_ppm, err);
        if (rc == 0)
            *out = w.load;
        return rc;
    }
    while (sv_next(&rest, ',', &word)) {
        struct sv key;
        if (!sv_next(&word, '=', &key))
            return error_set(err, -EINVAL, "'%.*s': expected word=value", SV_FMT(text));
        int rc = parse_load_word(trim(key), trim(word), &w, err);
        if (rc < 0)
            return rc;
    }
    int rc = check_load(&w, text, err);
    if (rc == 0)
        *out = w.load;
    return rc;
}

uint32_t sim_parse_gpu(const struct sim_node *n, struct sv text)
{
    uint64_t index;
    if (!sv_starts_with(text, SV("gpu")))
        return SIM_NONE;
    if (num_parse_u64(sv_sub(text, 3, text.len), 0, SIM_MAX_GPUS - 1, &index) != 0 ||
        index >= n->gpu_count)
        return SIM_NONE;
    return (uint32_t)index;
}

enum sim_field sim_parse_field(struct sv name)
{
    unsigned i = 0;
    while (i < SIM_FIELD_COUNT && !sv_equals(name, sv_from(sim_field_table[i].name)))
        i++;
    return (enum sim_field)i;
}

// "gi1" or "gi1/ci0" of the GPU at a time.
static uint32_t find_instance(const struct sim_node *n, uint32_t gpu, struct sv text, int64_t at)
{
    struct sv gi_text;
    uint64_t gi, ci = 0;
    if (!sv_next(&text, '/', &gi_text) || !sv_starts_with(gi_text, SV("gi")))
        return SIM_NONE;
    if (num_parse_u64(sv_sub(gi_text, 2, gi_text.len), 0, 1000, &gi) != 0)
        return SIM_NONE;
    if (text.len > 0 && (!sv_starts_with(text, SV("ci")) ||
                         num_parse_u64(sv_sub(text, 2, text.len), 0, 1000, &ci) != 0))
        return SIM_NONE;
    for (uint32_t i = 0; i < n->instance_count; i++) {
        const struct sim_instance *x = &n->instances[i];
        if (x->gpu == gpu && x->gi == gi && x->ci == ci && sim_instance_alive(n, i, at))
            return i;
    }
    return SIM_NONE;
}

int sim_find_instance(const struct sim_node *n, struct sv text, int64_t at, uint32_t *out_gpu,
                      uint32_t *out_instance, struct error *err)
{
    struct sv rest = text, head;
    (void)sv_next(&rest, '/', &head);
    uint32_t gpu = sim_parse_gpu(n, head);
    if (gpu == SIM_NONE)
        return error_set(err, -EINVAL, "no GPU '%.*s'", SV_FMT(text));
    *out_gpu = gpu;
    *out_instance = SIM_NONE;
    if (head.len == text.len)
        return 0;
    *out_instance = find_instance(n, gpu, rest, at);
    if (*out_instance == SIM_NONE)
        return error_set(err, -EINVAL, "no GPU instance '%.*s' at that time", SV_FMT(text));
    return 0;
}

int sim_resolve_device(struct sim_node *n, struct sv text, int64_t at, uint32_t *out_string,
                       struct error *err)
{
    size_t replica = sv_find(text, SV("::"));
    struct sv base = replica == (size_t)-1 ? text : sv_sub(text, 0, replica);
    struct sv tail = replica == (size_t)-1 ? SV("") : sv_sub(text, replica, text.len);
    uint32_t gpu, instance;
    if (sim_parse_gpu(n, sv_sub(base, 0, sv_find_char(base, '/'))) == SIM_NONE)
        return sim_add_string(n, text, out_string, err);
    int rc = sim_find_instance(n, base, at, &gpu, &instance, err);
    if (rc < 0)
        return rc;
    uint32_t uuid = instance == SIM_NONE ? n->gpus[gpu].uuid : n->instances[instance].uuid;
    char full[160];
    struct buf joined = BUF_INIT(sizeof(full));
    buf_add_str(&joined, sim_string(n, uuid));
    buf_add_sv(&joined, tail);
    sv_copy(full, sizeof(full), buf_sv(&joined));
    buf_deinit(&joined);
    return sim_add_string(n, sv_from(full), out_string, err);
}
