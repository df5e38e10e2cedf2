// SPDX-License-Identifier: Apache-2.0
// The load on a fake GPU, on a clock that only sleeping and waiting move: what is said here holds
// to the microsecond on a machine of any speed.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "burn/kernels.h"
#include "burn/load.h"
#include "fake_libcuda.h"

#define MIB (UINT64_C(1) << 20)
#define START (1000 * NS_PER_S)

static struct fake_cuda *fake;
static char *fake_path, *other_library;
static volatile int stop;
static struct burn_progress progress;
static char *gpu_names[2];

uint64_t __wrap_clock_mono_ns(void);
uint64_t __wrap_clock_mono_ns(void)
{
    fake->now_ns += NS_PER_US; // looking takes time too, or a loop that only looks would not end
    return fake->now_ns;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *left)
{
    uint64_t t = clock_timespec_ns(*until);
    if (t > fake->now_ns)
        fake->now_ns = t;
    if (fake->stop_at_ns && fake->now_ns >= fake->stop_at_ns)
        stop = 1;
    return 0;
}

static struct burn_options options(enum burn_kind kind, const char *shape)
{
    struct burn_options o = {.kind = kind,
                             .util_ppm = BURN_PPM,
                             .memory_bytes = 2 * MIB,
                             .hold = true,
                             .duration_ns = NS_PER_S,
                             .cuda_library = fake_path};
    struct error err = ERROR_INIT;
    assert_int_equal(burn_shape_parse(sv_from(shape), &o.shape, &err), 0);
    return o;
}

static int set_up(void **state)
{
    memset(fake, 0, offsetof(struct fake_cuda, spans));
    fake->now_ns = START - 2 * NS_PER_S;
    fake->turn_ns = 10 * NS_PER_US;
    fake->other_ns = 100 * NS_PER_US;
    fake->version = 12040;
    fake->gpus = 2;
    fake->major = 9;
    fake->total_bytes = 64 * MIB;
    fake->peers = true;
    fake->stop = &stop;
    stop = 0;
    progress = (struct burn_progress){0};
    return 0;
}

static enum burn_result run(const struct burn_options *o)
{
    enum burn_result r = burn_load_run(o, "0", START, &stop, &progress);
    assert_int_equal(progress.state, BURN_ENDED);
    // Nothing is left on the GPU, whatever the end was.
    assert_int_equal(fake->used_bytes, 0);
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->host_allocations, 0);
    return r;
}

// Time in which the GPU was busy within [from, to) of the schedule.
static uint64_t busy_within(uint64_t from, uint64_t to)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < fake->span_count; i++) {
        uint64_t a = fake->spans[i].from_ns, b = fake->spans[i].to_ns;
        a = a < START + from ? START + from : a;
        b = b > START + to ? START + to : b;
        sum += b > a ? b - a : 0;
    }
    return sum;
}

static void each_kind_runs_clean_and_is_compared(void **state)
{
    for (enum burn_kind kind = 0; kind < BURN_KIND_COUNT; kind++) {
        (void)set_up(NULL);
        struct burn_options o = options(kind, "constant");
        print_message("kind %s\n", burn_kind_name(kind));
        assert_int_equal(run(&o), BURN_CLEAN);
        assert_string_equal(progress.error, "");
        assert_true(progress.rounds >= 3);
        assert_int_equal(progress.mismatches, 0);
        assert_true(progress.operations > 0);
        assert_true(busy_within(0, NS_PER_S) > 985 * NS_PER_MS);
        assert_true(busy_within(NS_PER_S, 2 * NS_PER_S) <= NS_PER_MS);
    }
}

static void a_square_wave_is_square(void **state)
{
    struct burn_options o = options(BURN_FP32, "square:on=20s,off=20s");
    o.duration_ns = 0;
    o.cycles = 10;
    assert_int_equal(run(&o), BURN_CLEAN);
    uint64_t due = 0;
    for (uint64_t cycle = 0; cycle < 10; cycle++) {
        uint64_t on = cycle * 40 * NS_PER_S, off = on + 20 * NS_PER_S, next = off + 20 * NS_PER_S;
        assert_true(busy_within(on, off) >= 20 * NS_PER_S / 1000 * 995);
        assert_true(busy_within(off, next) <= NS_PER_MS);
        due += 20 * NS_PER_S;
    }
    assert_true(progress.busy_ns < due + due / 100);
    assert_true(progress.busy_ns > due - due / 100);
    assert_int_equal(progress.mismatches, 0);
}

static void the_duty_is_met_for_each_shape(void **state)
{
    static const char *const shapes[] = {
        "constant:high=0.5",
        "constant:high=0.01",
        "sine:period=10s",
        "ramp:period=10s",
        "steps:every=1s,levels=0/0.5/1",
        "random:every=1s,seed=4",
    };
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        (void)set_up(NULL);
        struct burn_options o = options(BURN_FP32, shapes[i]);
        o.duration_ns = 30 * NS_PER_S;
        o.util_ppm = 800000;
        assert_int_equal(run(&o), BURN_CLEAN);
        uint64_t due = burn_shape_busy_ns(&o.shape, 30 * NS_PER_S) / 10 * 8;
        uint64_t made = busy_within(0, 31 * NS_PER_S);
        print_message("%s: %llu of %llu\n", shapes[i], (unsigned long long)made,
                      (unsigned long long)due);
        assert_true(made < due + due / 100 + NS_PER_MS);
        assert_true(made > due - due / 100 - NS_PER_MS);
    }
}

static void a_slice_of_load_is_ten_milliseconds(void **state)
{
    struct burn_options o = options(BURN_INT32, "constant:high=0.5");
    assert_int_equal(run(&o), BURN_CLEAN);
    for (uint64_t t = 100 * NS_PER_MS; t < 900 * NS_PER_MS; t += 10 * NS_PER_MS) {
        uint64_t busy = busy_within(t, t + 10 * NS_PER_MS);
        assert_in_range(busy, 4 * NS_PER_MS, 6 * NS_PER_MS);
    }
}

// Memory is given back in the off phase: what was made last is compared before that.
static void all_of_a_phase_is_compared(void **state)
{
    struct burn_options o = options(BURN_FP32, "square:on=100ms,off=100ms");
    o.hold = false;
    o.cycles = 1;
    assert_int_equal(run(&o), BURN_CLEAN);
    uint64_t launches = fake->launches;
    for (uint64_t n = launches - 5; n <= launches; n++) {
        (void)set_up(NULL);
        fake->wrong_launch = (uint32_t)n;
        // Nothing is compared with the reference that the last comparison leaves.
        assert_int_equal(run(&o), n == launches ? BURN_CLEAN : BURN_WRONG_RESULTS);
    }
}

static void truth_is_what_the_gpu_did(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant:high=0.7");
    assert_int_equal(run(&o), BURN_CLEAN);
    // All but what makes references and the proof, which no job encloses.
    uint64_t made = 0;
    for (uint32_t i = 0; i < fake->span_count; i++)
        made += fake->spans[i].to_ns - fake->spans[i].from_ns;
    assert_true(progress.busy_ns <= made + NS_PER_US * fake->span_count);
    assert_true(progress.busy_ns >= made - 2 * NS_PER_MS);
}

// Between its events the GPU waited for us.
static void time_in_which_the_process_was_held_up_is_not_booked(void **state)
{
    static const char *const shapes[] = {"constant:high=0.5", "constant"};
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        (void)set_up(NULL);
        fake->held_up_ns = 100 * NS_PER_MS;
        fake->held_up_each = 7;
        struct burn_options o = options(BURN_FP32, shapes[i]);
        o.duration_ns = 10 * NS_PER_S;
        assert_int_equal(run(&o), BURN_CLEAN);
        uint64_t made = 0;
        for (uint32_t n = 0; n < fake->span_count; n++)
            made += fake->spans[n].to_ns - fake->spans[n].from_ns;
        assert_in_range(progress.busy_ns, made - made / 100 - 2 * NS_PER_MS, made + made / 100);
    }
}

// The turns of a quantum are those of a GPU that was not waited for.
static void being_held_up_at_the_start_makes_no_smaller_pieces(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    assert_int_equal(run(&o), BURN_CLEAN);
    uint64_t launches = fake->launches;
    for (uint32_t nth = 2; nth < 8; nth++) {
        (void)set_up(NULL);
        fake->held_up_ns = NS_PER_MS;
        fake->held_up_each = nth;
        fake->held_up_most = nth;
        assert_int_equal(run(&o), BURN_CLEAN);
        assert_in_range(fake->launches, launches - 5, launches + 5);
    }
}

static void a_stop_ends_within_100_ms(void **state)
{
    static const char *const shapes[] = {"constant", "constant:high=0.3", "square:on=1s,off=9s"};
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        (void)set_up(NULL);
        fake->stop_at_ns = START + 5 * NS_PER_S + 3 * NS_PER_MS;
        struct burn_options o = options(BURN_FP32, shapes[i]);
        o.duration_ns = 0;
        assert_int_equal(run(&o), BURN_CLEAN);
        assert_in_range(fake->now_ns, fake->stop_at_ns, fake->stop_at_ns + 100 * NS_PER_MS);
        assert_true(fake->free_at_ns <= fake->now_ns); // no kernel runs on
    }
}

static void a_wrong_word_is_found_and_counted(void **state)
{
    for (enum burn_kind kind = 0; kind < BURN_DRAM; kind++) {
        (void)set_up(NULL);
        fake->wrong_launch = 60; // in the middle of the schedule
        struct burn_options o = options(kind, "constant");
        assert_int_equal(run(&o), BURN_WRONG_RESULTS);
        assert_int_equal(progress.mismatches, 1);
        assert_string_equal(progress.error, "wrong results: 1 words differ");
    }
}

static void memory_that_keeps_a_wrong_word_is_found(void **state)
{
    fake->wrong_launch = 60; // and all after it
    struct burn_options o = options(BURN_DRAM, "constant");
    assert_int_equal(run(&o), BURN_WRONG_RESULTS);
    assert_in_range(progress.mismatches, 1, progress.rounds);
}

static void arithmetic_that_is_wrong_from_the_start_is_found(void **state)
{
    fake->wrong_launch = 2; // the first is the reference of the round that the proof replaces
    struct burn_options o = options(BURN_FP64, "constant");
    assert_int_equal(run(&o), BURN_WRONG_RESULTS);
    assert_string_equal(progress.error,
                        "the GPU's fp64 arithmetic is wrong: 1 of the first 256 results");
}

static void memory_is_exact_and_freed_when_off(void **state)
{
    struct burn_options o = options(BURN_FP32, "square:on=1s,off=1s");
    o.memory_bytes = 5 * MIB + 12;
    o.duration_ns = 3500 * NS_PER_MS; // ends within an off phase
    fake->stop_at_ns = 0;
    o.hold = false;
    assert_int_equal(run(&o), BURN_CLEAN);
    (void)set_up(NULL);
    fake->total_bytes = 5 * MIB + 12 + 4096; // and the control words
    assert_int_equal(run(&o), BURN_CLEAN);
    (void)set_up(NULL);
    fake->total_bytes = 5 * MIB + 11 + 4096;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error,
                        "not enough GPU memory: asked for 5 MiB (5242892 bytes), free is 5 MiB");
}

static void a_share_is_of_what_is_free(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    o.memory_bytes = 0;
    o.memory_percent = 50;
    strcpy(fake->fail_call, "cuEventSynchronize"); // to see what was held
    assert_int_equal(run(&o), BURN_CLEAN);
    fake->fail_call[0] = '\0';
    o.memory_percent = 1;
    fake->total_bytes = 4 * MIB;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error,
                        "0 bytes of memory are too few for fp32 on this GPU: it takes 8704");
}

struct bad {
    const char *gpu;
    enum burn_kind kind;
    int version, major, gpus;
    enum burn_result result;
    const char *text;
};

static void what_is_not_there_is_told_in_a_line(void **state)
{
    static const struct bad cases[] = {
        {"2", BURN_FP32, 12040, 9, 2, BURN_NO_GPU, "no GPU '2' here: there are 2, numbered from 0"},
        {"1", BURN_FP32, 12040, 9, 1, BURN_NO_GPU, "no GPU '1' here: there is 1, numbered from 0"},
        {"x", BURN_FP32, 12040, 9, 1, BURN_NO_GPU, "no GPU 'x' here: there is 1, numbered from 0"},
        {"0", BURN_FP32, 12040, 9, 0, BURN_NO_GPU, "the driver shows no GPU here"},
        {"GPU-00112233-4455-6677-8899-aabbccddeeff", BURN_FP32, 12040, 9, 2, BURN_NO_GPU,
         "no GPU 'GPU-00112233-4455-6677-8899-aabbccddeeff' here"},
        {"MIG-00112233", BURN_FP32, 12040, 9, 2, BURN_NO_GPU,
         "no MIG device 'MIG-00112233' here: a process sees the one that CUDA_VISIBLE_DEVICES "
         "names"},
        {"0", BURN_FP32, 5050, 9, 2, BURN_DRIVER_ERROR,
         "the driver is too old: it supports CUDA 5.5, fp32 needs 6.0"},
        {"0", BURN_BF16, 10020, 9, 2, BURN_DRIVER_ERROR,
         "the driver is too old: it supports CUDA 10.2, bf16 needs 11.0"},
        {"0", BURN_FP16, 12040, 6, 2, BURN_DRIVER_ERROR,
         "Fake GPU has compute capability 6.0, fp16 needs 7.0"},
        {"0", BURN_FP32, 12040, 3, 2, BURN_DRIVER_ERROR,
         "Fake GPU has compute capability 3.0, fp32 needs 5.0"},
        {"0", BURN_PEER, 12040, 9, 1, BURN_NO_GPU,
         "peer copies need two GPUs, the driver shows one"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct bad *c = &cases[i];
        (void)set_up(NULL);
        fake->version = c->version;
        fake->major = c->major;
        fake->gpus = c->gpus;
        struct burn_options o = options(c->kind, "constant");
        assert_int_equal(burn_load_run(&o, c->gpu, START, &stop, &progress), c->result);
        assert_string_equal(progress.error, c->text);
        assert_int_equal(fake->used_bytes + fake->contexts + fake->host_allocations, 0);
    }
}

static void a_gpu_is_found_by_uuid_of_either_form(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    assert_int_equal(
        burn_load_run(&o, "gpu-AB112233-4455-6677-8899-aabbccddee01", START, &stop, &progress),
        BURN_CLEAN);
    assert_string_equal(progress.uuid, "GPU-ab112233-4455-6677-8899-aabbccddee01");
    (void)set_up(NULL);
    fake->mig = true;
    assert_int_equal(burn_load_run(&o, "MIG-cd112233", START, &stop, &progress), BURN_CLEAN);
    assert_string_equal(progress.uuid, "MIG-cd112233-4455-6677-8899-aabbccddee00");
    assert_string_equal(progress.name, "Fake GPU");
}

static void a_library_that_is_none_is_told(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    o.cuda_library = "/nonexistent/libcuda.so.1";
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error, "'/nonexistent/libcuda.so.1' does not exist");
    o.cuda_library = other_library;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_non_null(
        strstr(progress.error, "has no cuInit: it is not the driver's library, or too old"));
}

static void a_node_without_a_driver_is_told(void **state)
{
    if (dlopen("libcuda.so.1", RTLD_NOW))
        skip();
    struct burn_options o = options(BURN_FP32, "constant");
    o.cuda_library = "";
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(
        progress.error,
        "libcuda.so.1 not found: no NVIDIA driver is installed here, or its library "
        "is not in this container (--cuda-library names it elsewhere)");
}

static void no_device_is_no_gpu(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    strcpy(fake->fail_call, "cuInit");
    fake->fail_code = CUDA_ERROR_NO_DEVICE;
    assert_int_equal(run(&o), BURN_NO_GPU);
    assert_string_equal(progress.error, "the driver shows no GPU here");
}

static void the_compilers_own_words_are_passed_on(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    strcpy(fake->fail_call, "cuModuleLoadDataEx");
    fake->fail_code = CUDA_ERROR_INVALID_PTX;
    fake->jit_log = "ptxas fatal : odd\nsecond line";
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error, "the driver cannot compile kernel fp32: ptxas fatal : odd");
    (void)set_up(NULL);
    strcpy(fake->fail_call, "cuModuleLoadDataEx");
    fake->fail_code = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error,
                        "the driver is too old: it supports CUDA 12.4, fp32 needs 6.0");
}

static void whatever_call_fails_the_end_is_clean(void **state)
{
    static const struct {
        enum burn_kind kind;
        const char *name;
    } calls[] = {
        {BURN_FP32, "cuInit"},
        {BURN_FP32, "cuDriverGetVersion"},
        {BURN_FP32, "cuDeviceGetCount"},
        {BURN_FP32, "cuDeviceGet"},
        {BURN_FP32, "cuDeviceGetName"},
        {BURN_FP32, "cuDeviceGetUuid"},
        {BURN_FP32, "cuDeviceGetUuid_v2"},
        {BURN_FP32, "cuDeviceGetAttribute"},
        {BURN_FP32, "cuDeviceTotalMem_v2"},
        {BURN_PEER, "cuDeviceCanAccessPeer"},
        {BURN_PEER, "cuDevicePrimaryCtxRetain"},
        {BURN_PEER, "cuCtxSetCurrent"},
        {BURN_PEER, "cuCtxEnablePeerAccess"},
        {BURN_PEER, "cuMemcpyPeerAsync"},
        {BURN_FP16, "cuModuleLoadDataEx"},
        {BURN_FP16, "cuModuleGetFunction"},
        {BURN_FP32, "cuMemGetInfo_v2"},
        {BURN_PEER, "cuMemAlloc_v2"},
        {BURN_PCIE_BOTH, "cuMemAllocHost_v2"},
        {BURN_FP32, "cuMemsetD32_v2"},
        {BURN_PCIE_BOTH, "cuMemcpyHtoDAsync_v2"},
        {BURN_PCIE_BOTH, "cuMemcpyDtoHAsync_v2"},
        {BURN_PCIE_BOTH, "cuStreamCreate"},
        {BURN_FP32, "cuStreamSynchronize"},
        {BURN_PCIE_BOTH, "cuEventCreate"},
        {BURN_FP32, "cuEventRecord"},
        {BURN_FP32, "cuEventSynchronize"},
        {BURN_FP32, "cuEventElapsedTime"},
        {BURN_FP32, "cuLaunchKernel"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        int after = 0;
        for (;; after += 1 + after / 4) {
            (void)set_up(NULL);
            (void)snprintf(fake->fail_call, sizeof(fake->fail_call), "%s", calls[i].name);
            fake->fail_code = 999;
            fake->fail_after = after;
            struct burn_options o = options(calls[i].kind, "square:on=100ms,off=100ms");
            o.hold = false;
            enum burn_result r = run(&o);
            // The closing waits once more, for what an error may have left.
            uint64_t seen =
                fake->calls_of_fail - (strcmp(calls[i].name, "cuStreamSynchronize") == 0);
            if (seen <= (uint64_t)after) {
                assert_int_equal(r, BURN_CLEAN);
                break;
            }
            assert_int_equal(r, BURN_DRIVER_ERROR);
            char stem[40];
            (void)snprintf(stem, sizeof(stem), "%s", calls[i].name);
            char *v2 = strstr(stem, "_v2");
            if (v2)
                *v2 = '\0';
            assert_non_null(strstr(progress.error, stem));
            assert_non_null(strstr(progress.error, "unknown error (CUDA_ERROR_UNKNOWN)"));
        }
        assert_true(after > 0);
    }
}

static void an_illegal_access_is_told(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    o.illegal_access = true;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(progress.error,
                        "an illegal access was provoked: an illegal memory access was encountered "
                        "(CUDA_ERROR_ILLEGAL_ADDRESS)");
}

static void peers_that_cannot_reach_each_other_are_told(void **state)
{
    fake->peers = false;
    struct burn_options o = options(BURN_PEER, "constant");
    gpu_names[0] = "0";
    gpu_names[1] = "1";
    memcpy(o.gpus, gpu_names, sizeof(gpu_names));
    o.gpu_count = 2;
    assert_int_equal(run(&o), BURN_DRIVER_ERROR);
    assert_string_equal(
        progress.error,
        "GPUs GPU-ab112233-4455-6677-8899-aabbccddee00 and "
        "GPU-ab112233-4455-6677-8899-aabbccddee01 cannot reach each other's memory");
}

static void a_peer_is_the_next_that_is_named_by_index_or_uuid(void **state)
{
    static char *names[][2] = {
        {"0", "2"},
        {"GPU-ab112233-4455-6677-8899-aabbccddee00", "GPU-ab112233-4455-6677-8899-aabbccddee02"}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)set_up(NULL);
        fake->gpus = 3;
        fake->peers = false; // so that both are told
        struct burn_options o = options(BURN_PEER, "constant");
        memcpy(o.gpus, names[i], sizeof(names[i]));
        o.gpu_count = 2;
        assert_int_equal(run(&o), BURN_DRIVER_ERROR);
        assert_non_null(strstr(progress.error,
                               "aabbccddee00 and GPU-ab112233-4455-6677-8899-aabbccddee02 cannot"));
    }
}

static void the_list_names_all(void **state)
{
    struct burn_options o = options(BURN_FP32, "constant");
    char uuids[BURN_GPUS_MAX][48];
    uint32_t count = 0;
    struct error err = ERROR_INIT;
    assert_int_equal(burn_load_list(&o, uuids, &count, &err), BURN_CLEAN);
    assert_int_equal(count, 2);
    assert_string_equal(uuids[1], "GPU-ab112233-4455-6677-8899-aabbccddee01");
    fake->gpus = 0;
    assert_int_equal(burn_load_list(&o, uuids, &count, &err), BURN_NO_GPU);
    assert_string_equal(err.text, "the driver shows no GPU here");
}

#define T(test) cmocka_unit_test_setup(test, set_up)

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    fake_path = argv[1];
    other_library = argv[2];
    void *library = dlopen(fake_path, RTLD_NOW);
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    if (!fake)
        return 2;
    const struct CMUnitTest tests[] = {
        T(each_kind_runs_clean_and_is_compared),
        T(a_square_wave_is_square),
        T(the_duty_is_met_for_each_shape),
        T(a_slice_of_load_is_ten_milliseconds),
        T(all_of_a_phase_is_compared),
        T(truth_is_what_the_gpu_did),
        T(time_in_which_the_process_was_held_up_is_not_booked),
        T(being_held_up_at_the_start_makes_no_smaller_pieces),
        T(a_stop_ends_within_100_ms),
        T(a_wrong_word_is_found_and_counted),
        T(memory_that_keeps_a_wrong_word_is_found),
        T(arithmetic_that_is_wrong_from_the_start_is_found),
        T(memory_is_exact_and_freed_when_off),
        T(a_share_is_of_what_is_free),
        T(what_is_not_there_is_told_in_a_line),
        T(a_gpu_is_found_by_uuid_of_either_form),
        T(a_library_that_is_none_is_told),
        T(a_node_without_a_driver_is_told),
        T(no_device_is_no_gpu),
        T(the_compilers_own_words_are_passed_on),
        T(whatever_call_fails_the_end_is_clean),
        T(an_illegal_access_is_told),
        T(peers_that_cannot_reach_each_other_are_told),
        T(a_peer_is_the_next_that_is_named_by_index_or_uuid),
        T(the_list_names_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
