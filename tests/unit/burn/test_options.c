// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "burn/options.h"

#define WORDS_MOST 16
#define MIB (UINT64_C(1) << 20)

// Splits at spaces.
static int parse(const char *line, char **environment, struct burn_options *out, struct error *err)
{
    char text[512], *argv[WORDS_MOST + 1] = {"podgpu-burn"};
    struct sv rest = sv_from(line), word;
    size_t used = 0;
    int argc = 1;
    while (sv_next(&rest, ' ', &word)) {
        assert_true(argc < WORDS_MOST && used + word.len < sizeof(text));
        sv_copy(text + used, sizeof(text) - used, word);
        argv[argc++] = text + used;
        used += word.len + 1;
    }
    return burn_options_parse(argc, argv, environment, out, err);
}

static struct burn_options good(const char *line)
{
    struct burn_options o;
    struct error err = ERROR_INIT;
    if (parse(line, NULL, &o, &err) != 0)
        fail_msg("%s: %s", line, err.text);
    return o;
}

static void without_flags_all_gpus_burn_until_told_to_end(void **state)
{
    (void)state;
    struct burn_options o = good("");
    assert_int_equal(o.kind, BURN_FP32);
    assert_int_equal(o.shape.kind, BURN_CONSTANT);
    assert_int_equal(o.shape.high_ppm, BURN_PPM);
    assert_int_equal(o.duration_ns, 0);
    assert_int_equal(o.cycles, 0);
    assert_int_equal(o.util_ppm, BURN_PPM);
    assert_int_equal(o.memory_percent, 10);
    assert_int_equal(o.memory_bytes, 0);
    assert_int_equal(o.processes, 1);
    assert_true(o.all_gpus && !o.gpu_burn && !o.hold && !o.align && !o.json && !o.list);
    assert_string_equal(o.listen, "");
    assert_string_equal(o.cuda_library, "");
    burn_options_deinit(&o);
}

static void the_flags_are_read(void **state)
{
    (void)state;
    struct burn_options o = good("--kind=bf16 --on 20 --off 20s --cycles=10 --util 40% --align "
                                 "--memory=8GiB --hold --gpus=1,GPU-abc");
    assert_int_equal(o.kind, BURN_BF16);
    assert_int_equal(o.shape.kind, BURN_SQUARE);
    assert_int_equal(o.shape.on_ns, 20 * NS_PER_S);
    assert_int_equal(o.shape.off_ns, 20 * NS_PER_S);
    assert_int_equal(o.cycles, 10);
    assert_int_equal(o.util_ppm, 400000);
    assert_int_equal(o.memory_bytes, 8192 * MIB);
    assert_int_equal(o.gpu_count, 2);
    assert_string_equal(o.gpus[0], "1");
    assert_string_equal(o.gpus[1], "GPU-abc");
    assert_true(o.align && o.hold && !o.all_gpus);
    burn_options_deinit(&o);
    o = good("--shape sine:period=60s --duration 90 --procs 3 --memory 90% --json --listen :9500 "
             "--provoke-xid");
    assert_int_equal(o.shape.kind, BURN_SINE);
    assert_int_equal(o.duration_ns, 90 * NS_PER_S);
    assert_int_equal(o.processes, 3);
    assert_int_equal(o.memory_percent, 30); // of each process
    assert_true(o.json && o.illegal_access);
    assert_string_equal(o.listen, ":9500");
    burn_options_deinit(&o);
    o = good("--gpus=all --cuda-library=/x/libcuda.so --debug --memory 512");
    assert_true(o.all_gpus);
    assert_string_equal(o.cuda_library, "/x/libcuda.so");
    assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(o.memory_bytes, 512 * MIB);
    burn_options_deinit(&o);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    for (unsigned k = 0; k < BURN_KIND_COUNT; k++) {
        char line[64] = "--kind=";
        sv_copy(line + 7, sizeof(line) - 7, sv_from(burn_kind_name((enum burn_kind)k)));
        struct burn_options o = good(line);
        assert_int_equal(o.kind, k);
        burn_options_deinit(&o);
    }
}

static void gpu_burns_command_lines_mean_what_they_did(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint64_t seconds;
        enum burn_kind kind;
        uint32_t percent;
        uint64_t mib;
        const char *gpu; // NULL: all
    } cases[] = {
        {"60", 60, BURN_FP32, 90, 0, NULL},
        {"-d 3600", 3600, BURN_FP64, 90, 0, NULL},
        {"-d", 10, BURN_FP64, 90, 0, NULL},
        {"-tc 20", 20, BURN_FP16, 90, 0, NULL},
        {"-d -tc 20", 20, BURN_FP64, 90, 0, NULL},
        {"-m 4096 20", 20, BURN_FP32, 0, 4096, NULL},
        {"-m 50% 20", 20, BURN_FP32, 50, 0, NULL},
        {"-m50% 20", 20, BURN_FP32, 50, 0, NULL},
        {"-m4096 -i2 20", 20, BURN_FP32, 0, 4096, "2"},
        {"-i 0 20", 20, BURN_FP32, 90, 0, "0"},
        {"-c compare.ptx -stts 5 20", 20, BURN_FP32, 90, 0, NULL},
        {"20 -d", 20, BURN_FP64, 90, 0, NULL},
        {"20 -m50% -i1", 20, BURN_FP32, 50, 0, "1"},
        {"--json 20", 20, BURN_FP32, 90, 0, NULL},
        {"20 --kind int32 --memory 5%", 20, BURN_INT32, 5, 0, NULL},
        {"-i 1 --duration 7", 7, BURN_FP32, 90, 0, "1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct burn_options o = good(cases[i].line);
        bool same = o.duration_ns == cases[i].seconds * NS_PER_S && o.kind == cases[i].kind &&
                    o.memory_percent == cases[i].percent && o.memory_bytes == cases[i].mib * MIB &&
                    o.gpu_burn && o.shape.kind == BURN_CONSTANT && o.all_gpus == !cases[i].gpu &&
                    (!cases[i].gpu || strcmp(o.gpus[0], cases[i].gpu) == 0);
        if (!same)
            fail_msg("%s: %llu s, %s, %u%%", cases[i].line,
                     (unsigned long long)(o.duration_ns / NS_PER_S), burn_kind_name(o.kind),
                     o.memory_percent);
        burn_options_deinit(&o);
    }
}

static void the_list_is_asked_for_both_ways(void **state)
{
    (void)state;
    struct burn_options o = good("-l");
    assert_true(o.list);
    burn_options_deinit(&o);
    o = good("--list");
    assert_true(o.list);
    burn_options_deinit(&o);
}

static void what_is_wrong_is_named_with_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"--kind=fp23", "--kind: unknown kind 'fp23' (did you mean 'fp32'?): expected fp32, fp64"},
        {"--knid=fp32", "unknown flag '--knid' (did you mean '--kind'?)"},
        {"--shape=squar:on=1", "--shape: unknown shape 'squar' (did you mean 'square'?)"},
        {"--on 20", "--on needs --off beside it"},
        {"--off 20", "--off needs --on beside it"},
        {"--on 20 --off x", "--off: expected a length such as 20s, 1m30s or 20 (seconds), found"},
        {"--on 5,high=0.5 --off 5", "--on: expected a length"},
        {"--on 0 --off 5", "--on, --off: shape square: on: expected a length from 1ms"},
        {"--on 1 --off 1 --shape constant", "--shape and --on: give one of them"},
        {"--cycles 3", "--cycles: constant load has no periods"},
        {"--cycles x", "--cycles: expected a whole number from 0"},
        {"--duration 5y", "--duration: expected a length such as 20s, 10m or 90 (seconds)"},
        {"--util 0", "--util: expected a percentage over 0 and up to 100"},
        {"--util 101%", "found '101%'"},
        {"--memory 5TB", "--memory: expected an amount such as 8GiB"},
        {"--memory 0%", "--memory: expected"},
        {"--memory 101%", "--memory: expected"},
        {"--gpus 64", "--gpus: expected a GPU's index from 0 to 63 or its UUID, found '64'"},
        {"--gpus 0,0", "--gpus: '0' is given twice"},
        {"--gpus 0,all", "found 'all'"},
        {"--procs 17", "--procs: expected a whole number from 1 to 16"},
        {"-m x 20", "-m: expected a number of MiB or a percentage"},
        {"-i x 20", "-i: expected a GPU's index"},
        {"-i 0 --gpus 1", "-i and --gpus: give one of them"},
        {"-m 5 --memory 5%", "-m and --memory: give one of them"},
        {"-d --kind fp32", "-d and --kind=fp32: give one of them"},
        {"ten", "'ten': expected a flag or a TIME"},
        {"0", "'0': expected a flag or a TIME"},
        {"10 20", "'20': expected nothing behind the TIME '10'"},
        {"20 -d ten", "'ten': expected nothing behind the TIME '20'"},
        {"20 -m", "-m needs a value"},
        {"20 --gpus", "--gpus needs a value"},
        {"-d 10 20", "'20': expected nothing behind the TIME '10'"},
        {"--duration 5 10", "--duration and the TIME '10': give one of them"},
        {"-stts", "-stts needs a value"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct burn_options o, empty = {0};
        struct error err = ERROR_INIT;
        if (parse(cases[i].line, NULL, &o, &err) != -EINVAL || !strstr(err.text, cases[i].says))
            fail_msg("'%s' says: %s", cases[i].line, err.text);
        assert_memory_equal(&o, &empty, sizeof(o));
    }
}

static void variables_stand_in_for_flags(void **state)
{
    (void)state;
    char *environment[] = {"PODGPU_BURN_KIND=fp64", "PODGPU_BURN_ON=1", "PODGPU_BURN_OFF=2",
                           "PODGPU_BURN_GPUS=0,1", NULL};
    struct burn_options o;
    assert_int_equal(parse("--off 3", environment, &o, NULL), 0);
    assert_int_equal(o.kind, BURN_FP64);
    assert_int_equal(o.shape.off_ns, 3 * NS_PER_S);
    assert_int_equal(o.gpu_count, 2);
    burn_options_deinit(&o);
}

static void help_and_version_are_outcomes(void **state)
{
    (void)state;
    struct burn_options o;
    assert_int_equal(parse("-h", NULL, &o, NULL), OPTION_OUTCOME_HELP);
    assert_int_equal(parse("-d -h", NULL, &o, NULL), OPTION_OUTCOME_HELP);
    assert_int_equal(parse("--version", NULL, &o, NULL), OPTION_OUTCOME_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_flags_all_gpus_burn_until_told_to_end),
        cmocka_unit_test(the_flags_are_read),
        cmocka_unit_test(every_kind_has_a_name),
        cmocka_unit_test(gpu_burns_command_lines_mean_what_they_did),
        cmocka_unit_test(the_list_is_asked_for_both_ways),
        cmocka_unit_test(what_is_wrong_is_named_with_what_was_expected),
        cmocka_unit_test(variables_stand_in_for_flags),
        cmocka_unit_test(help_and_version_are_outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
