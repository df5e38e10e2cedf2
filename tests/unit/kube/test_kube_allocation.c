// SPDX-License-Identifier: Apache-2.0
// Each allocation of the decoder, of a list's succession, of the client and of the poller fails
// once: -ENOMEM and nothing leaked (the sanitizers look).
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/num.h"
#include "io/grpc.h"
#include "kube/pod_devices.h"
#include "wire.h"

static struct buf small, large; // answers, made before anything fails

static void make_answer(struct buf *message, unsigned pods, unsigned ids)
{
    struct buf pod = BUF_INIT(1u << 20), container = BUF_INIT(1u << 20),
               devices = BUF_INIT(1u << 20);
    for (unsigned p = 0; p < pods; p++) {
        char name[24];
        name[num_print_u64(name, p)] = '\0';
        wire_str(&pod, 1, name);
        wire_str(&devices, 1, "nvidia.com/gpu");
        for (unsigned i = 0; i < ids; i++) {
            char id[24];
            id[num_print_u64(id, p * ids + i)] = '\0';
            wire_str(&devices, 2, id);
        }
        wire_message(&container, 2, &devices);
        wire_message(&pod, 3, &container);
        wire_message(message, 1, &pod);
    }
    assert_int_equal(message->error, 0);
    buf_deinit(&pod);
    buf_deinit(&container);
    buf_deinit(&devices);
}

static int decode(struct sv message, struct pod_devices **out)
{
    struct pod_resources_decoder *d;
    int r = pod_resources_decoder_new(NULL, NULL, &d);
    if (r < 0)
        return r;
    for (size_t at = 0; at < message.len && r == 0; at += 1000)
        r = pod_resources_decoder_feed(d, sv_sub(message, at, 1000));
    int finish = pod_resources_decoder_finish(d, out);
    if (r < 0)
        assert_int_equal(finish, r); // it sticks
    pod_resources_decoder_free(d);
    return finish;
}

static void decode_large(void)
{
    struct pod_devices *list = NULL;
    int r = decode(buf_sv(&large), &list);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_int_equal(list->count, 4 * 500);
    pod_devices_unref(list);
}

static struct pod_devices *previous; // made before anything fails

static void follow(void)
{
    struct pod_devices *fresh = NULL;
    size_t kept;
    int r = decode(buf_sv(&small), &fresh);
    if (r == 0)
        r = pod_devices_follow(fresh, previous, true, &kept);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_int_equal(fresh->count, 4 * 500);
    pod_devices_unref(fresh);
}

static struct loop *loop; // libuv's own allocations are not ours to fail

static void done(void *user, int result, unsigned grpc_status, const char *message)
{
    (void)user, (void)result, (void)grpc_status, (void)message;
}

static void start_call(void)
{
    const struct grpc_call_config config = {.socket_path = "/nonexistent",
                                            .method = "/m",
                                            .request = SV("request"),
                                            .deadline_ns = 1,
                                            .max_message_bytes = 1,
                                            .done = done};
    struct grpc_call *call = NULL;
    int r = grpc_call_new(loop, &config, &call);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    grpc_call_free(call);
}

static void start_poller(void)
{
    const struct pod_resources_config config = {
        .socket_path = "/nonexistent", .interval_ns = 1, .deadline_ns = 1};
    struct pod_resources *poller = NULL;
    int r = pod_resources_new(loop, &config, &poller);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    pod_resources_free(poller);
}

static void every_allocation_may_fail(void **state)
{
    small = BUF_INIT(1u << 20);
    large = BUF_INIT(1u << 20);
    make_answer(&small, 1, 500);
    make_answer(&large, 4, 500);
    assert_int_equal(decode(buf_sv(&large), &previous), 0);
    assert_int_equal(loop_new(&loop), 0);
    assert_true(allocation_sweep(decode_large) > 20);
    assert_true(allocation_sweep(follow) > 20);
    assert_true(allocation_sweep(start_call) >= 5);
    assert_true(allocation_sweep(start_poller) >= 4);
    loop_free(loop);
    pod_devices_unref(previous);
    buf_deinit(&small);
    buf_deinit(&large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("kube_allocation", tests, NULL, NULL);
}
