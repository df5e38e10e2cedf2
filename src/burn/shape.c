// SPDX-License-Identifier: Apache-2.0
// A table says which keys a shape has; every key is read once. Time within a period is a remainder
// of whole nanoseconds, so nothing drifts, and sums are made of products in 128 bits: whole periods
// count exactly, whatever the shape.
#include "burn/shape.h"

#include <errno.h>
#include <math.h>

#include "base/clock.h"
#include "base/num.h"

enum key {
    KEY_ON,
    KEY_OFF,
    KEY_PERIOD,
    KEY_EVERY,
    KEY_HIGH,
    KEY_LOW,
    KEY_LEVELS,
    KEY_SEED,
    KEY_COUNT,
};
#define BIT(key) (1u << (key))

static const char *const key_names[KEY_COUNT] = {"on",   "off", "period", "every",
                                                 "high", "low", "levels", "seed"};

static const struct {
    const char *name, *expected;
    unsigned known, needed;
} kinds[] = {
    [BURN_CONSTANT] = {"constant", "high=SHARE", BIT(KEY_HIGH), 0},
    [BURN_SQUARE] = {"square", "on=LENGTH,off=LENGTH[,high=SHARE][,low=SHARE]",
                     BIT(KEY_ON) | BIT(KEY_OFF) | BIT(KEY_HIGH) | BIT(KEY_LOW),
                     BIT(KEY_ON) | BIT(KEY_OFF)},
    [BURN_SINE] = {"sine", "period=LENGTH[,high=SHARE][,low=SHARE]",
                   BIT(KEY_PERIOD) | BIT(KEY_HIGH) | BIT(KEY_LOW), BIT(KEY_PERIOD)},
    [BURN_RAMP] = {"ramp", "period=LENGTH[,high=SHARE][,low=SHARE]",
                   BIT(KEY_PERIOD) | BIT(KEY_HIGH) | BIT(KEY_LOW), BIT(KEY_PERIOD)},
    [BURN_STEPS] = {"steps", "every=LENGTH,levels=SHARE/SHARE/...",
                    BIT(KEY_EVERY) | BIT(KEY_LEVELS), BIT(KEY_EVERY) | BIT(KEY_LEVELS)},
    [BURN_RANDOM] = {"random", "every=LENGTH,seed=NUMBER[,high=SHARE][,low=SHARE]",
                     BIT(KEY_EVERY) | BIT(KEY_SEED) | BIT(KEY_HIGH) | BIT(KEY_LOW),
                     BIT(KEY_EVERY) | BIT(KEY_SEED)},
};

// --- Reading ---

// As much of what was found as a message can carry.
static int shown(struct sv s)
{
    return s.len < 64 ? (int)s.len : 64;
}

int burn_parse_share(struct sv text, uint32_t *out_ppm)
{
    bool percent = sv_ends_with(text, SV("%"));
    double most = percent ? 100 : 1, value = 0;
    if (num_parse_double(sv_sub(text, 0, text.len - percent), &value) < 0)
        return -EINVAL;
    if (!(value >= 0 && value <= most))
        return -EINVAL;
    *out_ppm = (uint32_t)llround(value / most * BURN_PPM);
    return 0;
}

int burn_parse_length(struct sv text, uint64_t *out_ns)
{
    double seconds = 0;
    uint64_t ns = 0;
    if (num_parse_double(text, &seconds) == 0) {
        if (!(seconds >= 0 && seconds <= (double)(UINT64_MAX / NS_PER_S / 2)))
            return -EINVAL;
        *out_ns = (uint64_t)llround(seconds * (double)NS_PER_S);
        return 0;
    }
    if (num_parse_duration_go(text, &ns) < 0)
        return -EINVAL;
    *out_ns = ns;
    return 0;
}

static int read_length(struct sv text, uint64_t *out_ns)
{
    uint64_t ns = 0;
    if (burn_parse_length(text, &ns) < 0 || ns < BURN_PERIOD_LEAST_NS || ns > BURN_PERIOD_MOST_NS)
        return -EINVAL;
    *out_ns = ns;
    return 0;
}

// A separator at the end would be passed over by sv_next.
static int read_levels(struct sv text, struct burn_shape *out)
{
    struct sv piece;
    if (sv_ends_with(text, SV("/")))
        return -EINVAL;
    while (sv_next(&text, '/', &piece)) {
        if (out->level_count == BURN_LEVELS_MAX ||
            burn_parse_share(piece, &out->levels[out->level_count]) < 0)
            return -EINVAL;
        out->level_count++;
    }
    return out->level_count > 0 ? 0 : -EINVAL;
}

static int read_value(enum key key, struct sv text, struct burn_shape *out)
{
    switch (key) {
    case KEY_ON:
        return read_length(text, &out->on_ns);
    case KEY_OFF:
        return read_length(text, &out->off_ns);
    case KEY_PERIOD:
    case KEY_EVERY:
        return read_length(text, &out->period_ns);
    case KEY_HIGH:
        return burn_parse_share(text, &out->high_ppm);
    case KEY_LOW:
        return burn_parse_share(text, &out->low_ppm);
    case KEY_LEVELS:
        return read_levels(text, out);
    case KEY_SEED:
        return num_parse_u64(text, 0, UINT64_MAX, &out->seed);
    case KEY_COUNT:
        break;
    }
    return -EINVAL;
}

static const char *value_expected(enum key key)
{
    switch (key) {
    case KEY_ON:
    case KEY_OFF:
    case KEY_PERIOD:
    case KEY_EVERY:
        return "a length from 1ms to 744h such as 20s, 1m30s or 0.5 (seconds)";
    case KEY_HIGH:
    case KEY_LOW:
        return "a share from 0 to 1 or a percentage from 0% to 100%";
    case KEY_LEVELS:
        return "1 to 64 shares such as 0/0.5/1";
    case KEY_SEED:
        return "a whole number";
    case KEY_COUNT:
        break;
    }
    return "";
}

// The key named, among those that the shape has; KEY_COUNT with *err.
static enum key find_key(const struct burn_shape *s, struct sv word, struct error *err)
{
    struct sv_guess guess = sv_guess_start(word);
    for (unsigned k = 0; k < KEY_COUNT; k++) {
        if (!(kinds[s->kind].known & BIT(k)))
            continue;
        if (sv_equals(word, sv_from(key_names[k])))
            return (enum key)k;
        sv_guess_offer(&guess, sv_from(key_names[k]));
    }
    const char *name = kinds[s->kind].name, *expected = kinds[s->kind].expected;
    if (guess.best.len)
        (void)error_set(err, -EINVAL,
                        "shape %s has no key '%.*s' (did you mean '%.*s'?): expected %s:%s", name,
                        shown(word), word.ptr, SV_FMT(guess.best), name, expected);
    else
        (void)error_set(err, -EINVAL, "shape %s has no key '%.*s': expected %s:%s", name,
                        shown(word), word.ptr, name, expected);
    return KEY_COUNT;
}

static int read_pair(struct sv pair, struct burn_shape *out, unsigned *seen, struct error *err)
{
    size_t equals = sv_find_char(pair, '=');
    struct sv word = sv_sub(pair, 0, equals);
    const char *name = kinds[out->kind].name;
    enum key key = find_key(out, word, err);
    if (key == KEY_COUNT)
        return -EINVAL;
    struct sv value = equals == (size_t)-1 ? SV("") : sv_sub(pair, equals + 1, pair.len);
    if (*seen & BIT(key))
        return error_set(err, -EINVAL, "shape %s: %s is given twice", name, key_names[key]);
    *seen |= BIT(key);
    if (read_value(key, value, out) < 0)
        return error_set(err, -EINVAL, "shape %s: %s: expected %s, found '%.*s'", name,
                         key_names[key], value_expected(key), shown(value), value.ptr);
    return 0;
}

static int find_kind(struct sv word, enum burn_shape_kind *out, struct error *err)
{
    struct sv_guess guess = sv_guess_start(word);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (sv_equals(word, sv_from(kinds[i].name))) {
            *out = (enum burn_shape_kind)i;
            return 0;
        }
        sv_guess_offer(&guess, sv_from(kinds[i].name));
    }
    static const char expected[] = "constant, square, sine, ramp, steps or random";
    if (!guess.best.len)
        return error_set(err, -EINVAL, "unknown shape '%.*s': expected %s", shown(word), word.ptr,
                         expected);
    return error_set(err, -EINVAL, "unknown shape '%.*s' (did you mean '%.*s'?): expected %s",
                     shown(word), word.ptr, SV_FMT(guess.best), expected);
}

static int check_shape(const struct burn_shape *s, unsigned seen, struct error *err)
{
    const char *name = kinds[s->kind].name;
    unsigned missing = kinds[s->kind].needed & ~seen;
    for (unsigned k = 0; k < KEY_COUNT; k++)
        if (missing & BIT(k))
            return error_set(err, -EINVAL, "shape %s needs %s: expected %s:%s", name, key_names[k],
                             name, kinds[s->kind].expected);
    if (kinds[s->kind].known & BIT(KEY_LOW) && s->low_ppm >= s->high_ppm)
        return error_set(err, -EINVAL, "shape %s: low (%g) must be below high (%g)", name,
                         s->low_ppm / (double)BURN_PPM, s->high_ppm / (double)BURN_PPM);
    return 0;
}

int burn_shape_parse(struct sv text, struct burn_shape *out, struct error *err)
{
    struct burn_shape s = {.high_ppm = BURN_PPM};
    size_t colon = sv_find_char(text, ':');
    unsigned seen = 0;
    int r = find_kind(sv_sub(text, 0, colon), &s.kind, err);
    struct sv pairs = colon == (size_t)-1 ? SV("") : sv_sub(text, colon + 1, text.len), pair;
    while (r == 0 && sv_next(&pairs, ',', &pair))
        r = read_pair(pair, &s, &seen, err);
    if (r == 0)
        r = check_shape(&s, seen, err);
    if (r == 0)
        *out = s;
    return r;
}

// --- Duty and its integral ---

typedef unsigned __int128 u128;

uint64_t burn_shape_period_ns(const struct burn_shape *s)
{
    switch (s->kind) {
    case BURN_CONSTANT:
        return 0;
    case BURN_SQUARE:
        return s->on_ns + s->off_ns;
    case BURN_SINE:
    case BURN_RAMP:
    case BURN_RANDOM:
        return s->period_ns;
    case BURN_STEPS:
        return s->period_ns * s->level_count;
    }
    return 0;
}

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
static uint32_t random_level(const struct burn_shape *s, uint64_t step)
{
    uint64_t z = s->seed + (step + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return s->low_ppm + (uint32_t)(z % (s->high_ppm - s->low_ppm + 1));
}

static uint32_t step_count(const struct burn_shape *s)
{
    return s->kind == BURN_STEPS ? s->level_count : BURN_RANDOM_STEPS;
}

static uint32_t step_level(const struct burn_shape *s, uint64_t step)
{
    return s->kind == BURN_STEPS ? s->levels[step] : random_level(s, step);
}

static double sine_angle(const struct burn_shape *s, uint64_t within_ns)
{
    return 2 * M_PI * (double)within_ns / (double)s->period_ns;
}

uint32_t burn_shape_duty_ppm(const struct burn_shape *s, uint64_t t_ns)
{
    uint64_t period = burn_shape_period_ns(s), within = period ? t_ns % period : 0;
    uint32_t height = s->high_ppm - s->low_ppm;
    switch (s->kind) {
    case BURN_CONSTANT:
        return s->high_ppm;
    case BURN_SQUARE:
        return within < s->on_ns ? s->high_ppm : s->low_ppm;
    case BURN_SINE:
        return s->low_ppm + (uint32_t)lround(height * (1 - cos(sine_angle(s, within))) / 2);
    case BURN_RAMP:
        return s->low_ppm + (uint32_t)((u128)height * within / period);
    case BURN_STEPS:
    case BURN_RANDOM:
        return step_level(s, t_ns / s->period_ns % step_count(s));
    }
    return 0;
}

// Of parts per million times nanoseconds, from the start of a period or sequence.
static u128 steps_sum(const struct burn_shape *s, uint64_t within_ns)
{
    u128 sum = 0;
    uint64_t whole = within_ns / s->period_ns;
    for (uint64_t i = 0; i < whole; i++)
        sum += (u128)step_level(s, i) * s->period_ns;
    if (within_ns % s->period_ns)
        sum += (u128)step_level(s, whole) * (within_ns % s->period_ns);
    return sum;
}

static u128 sum_within(const struct burn_shape *s, uint64_t within_ns)
{
    uint64_t on = within_ns < s->on_ns ? within_ns : s->on_ns;
    uint32_t height = s->high_ppm - s->low_ppm;
    u128 base = (u128)s->low_ppm * within_ns;
    double wave;
    switch (s->kind) {
    case BURN_CONSTANT:
        return (u128)s->high_ppm * within_ns;
    case BURN_SQUARE:
        return (u128)s->high_ppm * on + (u128)s->low_ppm * (within_ns - on);
    case BURN_SINE:
        wave = (double)within_ns / 2 -
               (double)s->period_ns / (4 * M_PI) * sin(sine_angle(s, within_ns));
        return base + (u128)(height * fmax(wave, 0));
    case BURN_RAMP:
        return base + (u128)within_ns * within_ns * height / (2 * (u128)s->period_ns);
    case BURN_STEPS:
    case BURN_RANDOM:
        return steps_sum(s, within_ns);
    }
    return 0;
}

static u128 sum_of_period(const struct burn_shape *s, uint64_t length_ns)
{
    if (s->kind == BURN_SINE || s->kind == BURN_RAMP)
        return ((u128)s->low_ppm + s->high_ppm) * length_ns / 2;
    return sum_within(s, length_ns);
}

uint64_t burn_shape_busy_ns(const struct burn_shape *s, uint64_t t_ns)
{
    uint64_t length = burn_shape_period_ns(s);
    if (s->kind == BURN_RANDOM)
        length *= BURN_RANDOM_STEPS;
    if (length == 0 || t_ns < length)
        return (uint64_t)(sum_within(s, t_ns) / BURN_PPM);
    u128 sum = sum_of_period(s, length) * (t_ns / length) + sum_within(s, t_ns % length);
    return (uint64_t)(sum / BURN_PPM);
}

// --- Edges ---

uint64_t burn_shape_edge_ns(const struct burn_shape *s, uint64_t t_ns)
{
    uint64_t period = s->kind == BURN_STEPS ? s->period_ns : burn_shape_period_ns(s);
    if (period == 0)
        return UINT64_MAX;
    uint64_t within = t_ns % period, edge = period;
    if (s->kind == BURN_SQUARE && within < s->on_ns)
        edge = s->on_ns;
    uint64_t next = 0;
    return __builtin_add_overflow(t_ns - within, edge, &next) ? UINT64_MAX : next;
}

bool burn_shape_is_on(const struct burn_shape *s, uint64_t t_ns)
{
    return burn_shape_duty_ppm(s, t_ns) > s->low_ppm;
}
