// SPDX-License-Identifier: Apache-2.0
// gpu_burn's grammar differs in two ways from that of base/option.h: values may be glued to -m and
// -i, and TIME may stand before flags. Both are put right in a copy of argv; what is left is one
// table.
#include "burn/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"

#define GPU_BURN_SECONDS 10
#define SECONDS_MOST UINT64_C(1000000000) // 31 years
#define MIB (UINT64_C(1) << 20)

static const char *const kind_names[BURN_KIND_COUNT] = {
    [BURN_FP32] = "fp32",           [BURN_FP64] = "fp64",         [BURN_FP16] = "fp16",
    [BURN_BF16] = "bf16",           [BURN_TF32] = "tf32",         [BURN_INT32] = "int32",
    [BURN_DRAM] = "dram",           [BURN_PCIE_H2D] = "pcie-h2d", [BURN_PCIE_D2H] = "pcie-d2h",
    [BURN_PCIE_BOTH] = "pcie-both", [BURN_PEER] = "peer",
};

const char *burn_kind_name(enum burn_kind kind)
{
    return kind_names[kind];
}

static bool all_digits(struct sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return false;
    return s.len > 0;
}

// --- Words ---

struct words {
    char **argv; // a copy, ended by NULL
    int argc;
    char *time;     // before the flags, taken out; NULL: none there
    char *glued[2]; // "-m=90%" for "-m90%", owned
    unsigned glued_count;
};

static void words_deinit(struct words *w)
{
    for (unsigned i = 0; i < w->glued_count; i++)
        free(w->glued[i]);
    free(w->argv);
    *w = (struct words){0};
}

// -m90% and -i0 with an equals sign between. More than one of each is left to be refused.
static int unglue(struct words *w, char **word)
{
    struct sv s = sv_from(*word), value = sv_sub(s, 2, s.len);
    bool memory = sv_starts_with(s, SV("-m")), index = sv_starts_with(s, SV("-i"));
    if (memory && sv_ends_with(value, SV("%")))
        value = sv_sub(value, 0, value.len - 1);
    if ((!memory && !index) || !all_digits(value) || w->glued_count == ARRAY_SIZE(w->glued))
        return 0;
    struct buf b = BUF_INIT(4096);
    buf_add(&b, s.ptr, 2);
    buf_add_char(&b, '=');
    buf_add_sv(&b, sv_sub(s, 2, s.len));
    buf_add_char(&b, '\0');
    int error = b.error;
    if (error) {
        buf_deinit(&b);
        return error;
    }
    *word = w->glued[w->glued_count++] = buf_take(&b, NULL);
    return 0;
}

static int words_init(struct words *w, int argc, char **argv)
{
    w->argv = calloc((size_t)argc + 1, sizeof(*w->argv));
    if (!w->argv)
        return -ENOMEM;
    w->argc = argc;
    memcpy(w->argv, argv, (size_t)argc * sizeof(*argv));
    for (int i = 1; i < argc; i++)
        if (unglue(w, &w->argv[i]) < 0)
            return -ENOMEM;
    if (argc > 1 && all_digits(sv_from(w->argv[1]))) {
        w->time = w->argv[1];
        w->argc--;
        memmove(&w->argv[1], &w->argv[2], (size_t)w->argc * sizeof(*argv));
    }
    return 0;
}

// --- Values ---

static int bad(struct error *err, const char *flag, const char *expected, const char *found)
{
    return error_set(err, -EINVAL, "%s: expected %s, found '%.128s'", flag, expected, found);
}

static int read_kind(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    struct sv_guess guess = sv_guess_start(sv_from(f->kind));
    if (f->kind_given && (f->doubles || f->tensor))
        return error_set(err, -EINVAL, "%s and --kind=%.64s: give one of them",
                         f->doubles ? "-d" : "-tc", f->kind);
    o->kind = f->doubles ? BURN_FP64 : f->tensor ? BURN_FP16 : BURN_KIND_COUNT;
    for (unsigned k = 0; k < BURN_KIND_COUNT && o->kind == BURN_KIND_COUNT; k++) {
        if (strcmp(f->kind, kind_names[k]) == 0)
            o->kind = (enum burn_kind)k;
        sv_guess_offer(&guess, sv_from(kind_names[k]));
    }
    if (o->kind != BURN_KIND_COUNT)
        return 0;
    char hint[64] = "";
    struct buf b = BUF_INIT(sizeof(hint) - 1);
    if (guess.best.len)
        buf_add_fmt(&b, " (did you mean '%.*s'?)", SV_FMT(guess.best));
    sv_copy(hint, sizeof(hint), buf_sv(&b));
    buf_deinit(&b);
    return error_set(err, -EINVAL,
                     "--kind: unknown kind '%.64s'%s: expected fp32, fp64, fp16, bf16, tf32, "
                     "int32, dram, pcie-h2d, pcie-d2h, pcie-both or peer",
                     f->kind, hint);
}

// As a square's text, so that its limits and messages are those of --shape.
static int read_on_off(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    struct error inner = ERROR_INIT;
    struct buf text = BUF_INIT(4096);
    if (f->shape[0])
        return error_set(err, -EINVAL, "--shape and --%s: give one of them",
                         f->on[0] ? "on" : "off");
    if (!f->on[0] || !f->off[0])
        return error_set(err, -EINVAL, "--%s needs --%s beside it", f->on[0] ? "on" : "off",
                         f->on[0] ? "off" : "on");
    uint64_t length = 0; // no comma may bring other keys along
    for (int i = 0; i < 2; i++)
        if (burn_parse_length(sv_from(i ? f->off : f->on), &length) < 0)
            return bad(err, i ? "--off" : "--on", "a length such as 20s, 1m30s or 20 (seconds)",
                       i ? f->off : f->on);
    buf_add_fmt(&text, "square:on=%s,off=%s", f->on, f->off);
    int r = text.error ? text.error : burn_shape_parse(buf_sv(&text), &o->shape, &inner);
    buf_deinit(&text);
    return r == -EINVAL ? error_set(err, r, "--on, --off: %s", inner.text) : r;
}

static int read_shape(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    struct error inner = ERROR_INIT;
    if (f->on[0] || f->off[0])
        return read_on_off(f, o, err);
    int r = burn_shape_parse(f->shape[0] ? sv_from(f->shape) : SV("constant"), &o->shape, &inner);
    return r < 0 ? error_set(err, r, "--shape: %s", inner.text) : 0;
}

static int read_ends(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    uint64_t period = burn_shape_period_ns(&o->shape), all = 0;
    o->cycles = (uint64_t)f->cycles;
    if (o->cycles && !period)
        return error_set(err, -EINVAL,
                         "--cycles: constant load has no periods: give --shape or --on and --off");
    if (__builtin_mul_overflow(o->cycles, period, &all) || all > SECONDS_MOST * NS_PER_S)
        return error_set(err, -EINVAL, "--cycles: %llu periods take longer than 30 years",
                         (unsigned long long)o->cycles);
    if (f->duration[0] && (burn_parse_length(sv_from(f->duration), &o->duration_ns) < 0 ||
                           o->duration_ns > SECONDS_MOST * NS_PER_S))
        return bad(err, "--duration", "a length such as 20s, 10m or 90 (seconds)", f->duration);
    return 0;
}

static int read_util(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    struct sv text = sv_from(f->util);
    double percent = 0;
    text.len -= sv_ends_with(text, SV("%"));
    if (num_parse_double(text, &percent) < 0 || !(percent > 0 && percent <= 100))
        return bad(err, "--util", "a percentage over 0 and up to 100, such as 40", f->util);
    o->util_ppm = (uint32_t)(percent * (BURN_PPM / 100) + 0.5);
    o->util_ppm += o->util_ppm == 0; // less than a millionth: some is wanted
    return 0;
}

static int read_amount(struct sv text, struct burn_options *o)
{
    static const struct {
        struct sv unit;
        uint64_t bytes;
    } units[] = {{{"GiB", 3}, MIB << 10}, {{"MiB", 3}, MIB}, {{"", 0}, MIB}};
    uint64_t number = 0;
    if (sv_ends_with(text, SV("%"))) {
        if (num_parse_u64(sv_sub(text, 0, text.len - 1), 1, 100, &number) < 0)
            return -EINVAL;
        o->memory_percent = (uint32_t)number / o->processes;
        o->memory_percent += o->memory_percent == 0;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!sv_ends_with(text, units[i].unit))
            continue;
        if (num_parse_u64(sv_sub(text, 0, text.len - units[i].unit.len), 1, 1u << 20, &number) < 0)
            return -EINVAL;
        o->memory_bytes = number * units[i].bytes;
        return 0;
    }
    return -EINVAL;
}

static int read_memory(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    if (f->memory_given && f->memory_mib_given)
        return error_set(err, -EINVAL, "-m and --memory: give one of them");
    bool theirs = o->gpu_burn && !f->memory_given;
    const char *text = theirs ? f->memory_mib : f->memory;
    if (read_amount(sv_from(text), o) < 0)
        return bad(err, theirs ? "-m" : "--memory",
                   theirs ? "a number of MiB or a percentage from 1% to 100%"
                          : "an amount such as 8GiB or 512MiB, or a percentage from 1% to 100%",
                   text);
    return 0;
}

// An index or a UUID.
static int add_gpu(struct burn_options *o, const char *flag, const char *word, struct error *err)
{
    struct sv s = sv_from(word);
    uint64_t index = 0;
    bool uuid = s.len < 48 && (sv_starts_with(s, SV("GPU-")) || sv_starts_with(s, SV("MIG-")));
    if (!uuid && num_parse_u64(s, 0, BURN_GPUS_MAX - 1, &index) < 0)
        return bad(err, flag, "a GPU's index from 0 to 63 or its UUID", word);
    for (uint32_t i = 0; i < o->gpu_count; i++)
        if (sv_equals(s, sv_from(o->gpus[i])))
            return error_set(err, -EINVAL,
                             "%s: '%.64s' is given twice; --procs=2 puts two "
                             "processes on a GPU",
                             flag, word);
    if (o->gpu_count == BURN_GPUS_MAX)
        return error_set(err, -EINVAL, "%s: more than %d GPUs", flag, BURN_GPUS_MAX);
    o->gpus[o->gpu_count] = sv_dup(s);
    return o->gpus[o->gpu_count++] ? 0 : -ENOMEM;
}

static int read_gpus(const struct burn_flags *f, struct burn_options *o, struct error *err)
{
    if (f->index_given && f->gpus.count)
        return error_set(err, -EINVAL, "-i and --gpus: give one of them");
    if (f->index_given)
        return add_gpu(o, "-i", f->index, err);
    o->all_gpus =
        f->gpus.count == 0 || (f->gpus.count == 1 && strcmp(f->gpus.items[0], "all") == 0);
    int r = 0;
    for (size_t i = 0; i < f->gpus.count && !o->all_gpus && r == 0; i++)
        r = add_gpu(o, "--gpus", f->gpus.items[i], err);
    return r;
}

// TIME, gpu_burn's way; *word is NULL without one.
static int read_time(const char *word, const char *next, struct burn_options *o, struct error *err)
{
    uint64_t seconds = GPU_BURN_SECONDS;
    if (word && num_parse_u64(sv_from(word), 1, SECONDS_MOST, &seconds) < 0)
        return error_set(err, -EINVAL,
                         "'%.128s': expected a flag or a TIME, a whole number of seconds; --help "
                         "lists all flags",
                         word);
    if (next)
        return error_set(err, -EINVAL, "'%.128s': expected nothing behind the TIME '%.32s'", next,
                         word);
    if (word && o->duration_ns)
        return error_set(err, -EINVAL, "--duration and the TIME '%.32s': give one of them", word);
    if (!o->duration_ns && !o->cycles)
        o->duration_ns = seconds * NS_PER_S;
    return 0;
}

static int check(const struct burn_flags *f, struct words *rest, struct burn_options *o,
                 struct error *err)
{
    int behind = rest->time ? 0 : 1; // words before what should be the end
    const char *time = rest->time ? rest->time : rest->argv[0];
    o->gpu_burn = time || f->memory_mib_given || f->doubles || f->tensor || f->index_given ||
                  f->compare_given || f->grace_given;
    o->processes = (uint32_t)f->procs;
    o->align = f->align;
    o->hold = f->hold;
    o->list = f->list;
    o->json = f->json;
    o->illegal_access = f->provoke_xid;
    o->log_level = f->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    int r = read_kind(f, o, err);
    if (r == 0)
        r = read_shape(f, o, err);
    if (r == 0)
        r = read_ends(f, o, err);
    if (r == 0)
        r = read_util(f, o, err);
    if (r == 0)
        r = read_memory(f, o, err);
    if (r == 0)
        r = read_gpus(f, o, err);
    if (r == 0 && o->gpu_burn)
        r = read_time(time, rest->argc > behind ? rest->argv[behind] : NULL, o, err);
    return r;
}

uint32_t burn_duty_ppm(const struct burn_options *o, uint64_t t_ns)
{
    return (uint32_t)((uint64_t)burn_shape_duty_ppm(&o->shape, t_ns) * o->util_ppm / BURN_PPM);
}

uint64_t burn_due_ns(const struct burn_options *o, uint64_t t_ns)
{
    unsigned __int128 full = burn_shape_busy_ns(&o->shape, t_ns);
    return (uint64_t)(full * o->util_ppm / BURN_PPM);
}

uint64_t burn_end_ns(const struct burn_options *o)
{
    uint64_t cycles = o->cycles * burn_shape_period_ns(&o->shape);
    if (cycles && o->duration_ns)
        return cycles < o->duration_ns ? cycles : o->duration_ns;
    return cycles ? cycles : o->duration_ns ? o->duration_ns : UINT64_MAX;
}

int burn_options_parse(int argc, char **argv, char **environment, struct burn_options *out,
                       struct error *err)
{
    struct burn_flags flags = {0};
    struct words words = {0};
    int first = 0; // of the words behind the flags
    *out = (struct burn_options){0};
    int r = words_init(&words, argc, argv);
    if (r == 0)
        r = option_parse(&burn_option_table, words.argc, words.argv, environment, &flags, &first,
                         err);
    if (r == 0) {
        struct words rest = {
            .argv = words.argv + first, .argc = words.argc - first, .time = words.time};
        r = check(&flags, &rest, out, err);
        out->listen = TAKE_PTR(flags.listen);
        out->cuda_library = TAKE_PTR(flags.cuda_library);
        option_deinit(&burn_option_table, &flags);
    }
    words_deinit(&words);
    if (r == -ENOMEM)
        (void)error_set(err, r, "out of memory");
    if (r < 0)
        burn_options_deinit(out);
    return r;
}

void burn_options_deinit(struct burn_options *o)
{
    for (uint32_t i = 0; i < o->gpu_count; i++)
        free(o->gpus[i]);
    free(o->listen);
    free(o->cuda_library);
    *o = (struct burn_options){0};
}
