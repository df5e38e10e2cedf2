// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/clock.h"
#include "fake_dcgm.h"
#include "source/dcgm_health_internal.h"

#define F fake_dcgm
#define NONE UINT32_MAX
#define ALL UINT64_MAX
#define XID 230

static const uint64_t periods[4] = {NS_PER_S, 10 * NS_PER_S, 30 * NS_PER_S, 600 * NS_PER_S};
static struct dcgm_devices v;
static struct dcgm_health *h;
static struct frame_reader reader;
static uint64_t now_ns;
// What the last read told.
static struct frame_verdict verdicts[64];
static struct frame_peer peers[64];
static struct frame_event events[512];
static uint32_t verdict_count, peer_count, event_count;
static unsigned health_frames, peer_frames, event_frames;

static void start(unsigned major)
{
    fake_dcgm_reset(major);
    v = (struct dcgm_devices){0};
    frame_reader_init(&reader);
    F.now_us = (long long)(clock_wall_ns() / 1000);
    now_ns = NS_PER_S;
    assert_int_equal(dcgm_health_new(&F.d, &v, &h), 0);
}

static void stop(void)
{
    dcgm_health_free(h);
    dcgm_devices_deinit(&v);
    frame_reader_deinit(&reader);
    assert_int_equal(fake_dcgm_alive(), 0);
}

static int setup(void **state)
{
    start(4);
    return 0;
}

static int teardown(void **state)
{
    stop();
    return 0;
}

static void take(const struct frame *frame)
{
    if (frame->type == FRAME_HEALTH) {
        health_frames++;
        verdict_count = frame->as.health.head->count;
        assert_true(verdict_count <= ARRAY_SIZE(verdicts));
        memcpy(verdicts, frame->as.health.list, verdict_count * sizeof(*verdicts));
    } else if (frame->type == FRAME_PEERS) {
        peer_frames++;
        peer_count = frame->as.peers.head->count;
        assert_true(peer_count <= ARRAY_SIZE(peers));
        memcpy(peers, frame->as.peers.list, peer_count * sizeof(*peers));
    } else if (frame->type == FRAME_EVENTS) {
        event_frames++;
        uint32_t count = frame->as.events.head->count;
        assert_true(event_count + count <= ARRAY_SIZE(events));
        memcpy(events + event_count, frame->as.events.list, count * sizeof(*events));
        event_count += count;
    } else {
        assert_int_equal(frame->type, FRAME_ENTITIES);
    }
}

// All of it through the exporter's reader, which checks it.
static void feed(const struct buf *out)
{
    assert_int_equal(out->error, 0);
    for (size_t at = 0; at < out->len;) {
        char *space;
        size_t bytes;
        struct frame frame;
        const char *what = "";
        assert_int_equal(frame_reader_space(&reader, &space, &bytes), 0);
        bytes = bytes < out->len - at ? bytes : out->len - at;
        memcpy(space, out->data + at, bytes);
        frame_reader_commit(&reader, bytes);
        at += bytes;
        int rc;
        while ((rc = frame_reader_next(&reader, &frame, &what)) > 0)
            take(&frame);
        if (rc < 0)
            fail_msg("%s", what);
    }
}

static void apply(bool wants_verdicts, bool wants_peers)
{
    assert_int_equal(dcgm_health_apply(h, wants_verdicts, wants_peers, ALL, periods), DCGM_ST_OK);
}

static void walk(void)
{
    bool changed;
    struct buf out = BUF_INIT(LIMIT_FRAME_BYTES);
    assert_int_equal(dcgm_devices_walk(&F.d, &v, &changed), DCGM_ST_OK);
    dcgm_devices_write(&v, &out);
    feed(&out);
    buf_deinit(&out);
}

static dcgmReturn_t read_result(void)
{
    struct buf out = BUF_INIT(LIMIT_FRAME_BYTES);
    verdict_count = peer_count = event_count = 0;
    health_frames = peer_frames = event_frames = 0;
    dcgmReturn_t result = dcgm_health_read(h, now_ns, &out);
    feed(&out);
    buf_deinit(&out);
    return result;
}

static void read_now(void)
{
    assert_int_equal(read_result(), DCGM_ST_OK);
}

static void read_after(uint64_t ns)
{
    now_ns += ns;
    read_now();
}

// A sample of field 230, so long ago.
static void add_xid(int group, unsigned id, int64_t ago_us, int64_t xid)
{
    fake_dcgm_add_sample(group, id, XID, F.now_us - ago_us, xid);
}

static void add_incident(int group, unsigned id, unsigned system, int health, unsigned code)
{
    F.incident[F.incidents++] = (dcgmIncidentInfo_t){.system = system,
                                                     .health = health,
                                                     .error = {.code = code, .msg = "words"},
                                                     .entityInfo = {group, id}};
}

// GPU 0 with an instance (DCGM 3, NVML 5) and a compute instance, and GPU 2.
static void make_devices(void)
{
    fake_dcgm_add_gpu(2, "GPU-2");
    fake_dcgm_add_instance(0, 3, 5, 2);
    fake_dcgm_add_compute(3, 4, 5, 0);
    walk();
    assert_int_equal(v.count, 4);
}

// --- verdicts ---

static void incidents_are_verdicts_of_their_gpus(void **state)
{
    static const unsigned majors[] = {4, 3};
    stop();
    for (size_t i = 0; i < ARRAY_SIZE(majors); i++) {
        start(majors[i]);
        make_devices();
        add_incident(DCGM_FE_GPU, 2, DCGM_HEALTH_WATCH_PCIE, 10, 3);
        add_incident(DCGM_FE_GPU_I, 3, DCGM_HEALTH_WATCH_MEM, 20, 4);
        add_incident(DCGM_FE_GPU_CI, 4, DCGM_HEALTH_WATCH_SM, 10, 101);
        add_incident(DCGM_FE_GPU, 0, DCGM_HEALTH_WATCH_ALL, 20, 120);
        apply(true, false);
        assert_int_equal(F.health_systems, 0xffffffffu);
        assert_int_equal(F.health_period_us, 10000000);
        read_now();
        assert_int_equal(health_frames, 1);
        const struct frame_verdict expected[] = {
            {3, 0x1, 10, 3}, {0, 0x10, 20, 4}, {0, 0x20, 10, 101}, {0, NONE, 20, 120}};
        assert_int_equal(verdict_count, ARRAY_SIZE(expected));
        assert_memory_equal(verdicts, expected, sizeof(expected));
        stop();
    }
    start(4);
}

static void of_several_incidents_of_one_system_the_last_stands(void **state)
{
    walk();
    add_incident(DCGM_FE_GPU, 0, DCGM_HEALTH_WATCH_MEM, 20, 4);
    add_incident(DCGM_FE_GPU, 0, DCGM_HEALTH_WATCH_PCIE, 10, 3);
    add_incident(DCGM_FE_GPU, 0, DCGM_HEALTH_WATCH_MEM, 10, 5);
    add_incident(DCGM_FE_GPU, 0, DCGM_HEALTH_WATCH_PCIE, 0, 0); // passes after all
    apply(true, false);
    read_now();
    assert_int_equal(verdict_count, 1);
    assert_int_equal(verdicts[0].system, DCGM_HEALTH_WATCH_MEM);
    assert_int_equal(verdicts[0].result, 10);
    assert_int_equal(verdicts[0].code, 5);
}

static void incidents_that_say_nothing_of_a_gpu_are_left_out(void **state)
{
    F.switches = 1;
    walk();
    add_incident(DCGM_FE_SWITCH, 0, 0x800, 20, 15);
    add_incident(DCGM_FE_GPU, 9, 0x1, 20, 3); // not in the list
    add_incident(DCGM_FE_GPU, 0, 0x3, 20, 3); // two systems
    add_incident(DCGM_FE_GPU, 0, 0, 20, 3);   // none
    add_incident(DCGM_FE_GPU, 0, 0x1, 15, 3); // no result that there is
    add_incident(-1, 0, 0x1, 20, 3);
    apply(true, false);
    read_now();
    assert_int_equal(health_frames, 1); // all pass
    assert_int_equal(verdict_count, 0);
}

static void a_count_past_the_incidents_is_cut(void **state)
{
    struct frame_verdict out[64];
    walk();
    for (unsigned i = 0; i < 64; i++)
        add_incident(DCGM_FE_GPU, 0, 1u << i % 14, 20, i);
    assert_int_equal(dcgm_verdicts_of(&v, F.incident, 64, out), 14);
    assert_int_equal(out[13].code, 55);
    assert_int_equal(out[0].code, 56);
    stop();
    start(3); // the answer has room for 64 incidents
    walk();
    apply(true, false);
    for (unsigned i = 0; i < 64; i++)
        add_incident(DCGM_FE_GPU, 0, 1u << i % 14, 20, i);
    read_now();
    assert_int_equal(verdict_count, 14);
}

static void health_is_checked_each_medium_period(void **state)
{
    walk();
    apply(true, false);
    assert_int_equal(dcgm_health_due_ns(h), 0);
    for (unsigned i = 0; i < 31; i++) // seconds
        read_after(i ? NS_PER_S : 0);
    assert_int_equal(F.call.dcgmHealthCheck.calls, 4);
    assert_int_equal(F.call.dcgmHealthSet_v2.calls, 1);
    assert_int_equal(F.call.dcgmGetValuesSince_v2.calls, 31 + 1); // and where it begins
    assert_int_equal(dcgm_health_due_ns(h), now_ns + NS_PER_S);
}

static void the_gpus_that_are_asked_for_have_verdicts(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm_add_gpu(2, "GPU-2");
    v.skipped = 4;
    walk();
    assert_int_equal(dcgm_health_apply(h, true, false, 0x6, periods), DCGM_ST_OK);
    const struct fake_dcgm_group *g = &F.groups[F.health_group - 1];
    assert_int_equal(g->count, 1);
    assert_int_equal(g->pairs[0].entityGroupId, DCGM_FE_GPU);
    assert_int_equal(g->pairs[0].entityId, 1);
    // None at all
    assert_int_equal(dcgm_health_apply(h, true, false, 0x8, periods), DCGM_ST_OK);
    read_after(10 * NS_PER_S);
    assert_int_equal(health_frames, 0);
    assert_int_equal(dcgm_health_due_ns(h), now_ns + NS_PER_S); // of the XIDs
    assert_int_equal(dcgm_health_apply(h, false, false, ALL, periods), DCGM_ST_OK);
    read_after(10 * NS_PER_S);
    assert_int_equal(health_frames, 0);
}

static void the_same_wish_costs_nothing(void **state)
{
    make_devices();
    apply(true, true);
    unsigned calls = fake_dcgm_calls();
    apply(true, true);
    assert_int_equal(fake_dcgm_calls(), calls);
    // A list that is another elsewhere: a look, no new groups.
    F.switches = 1;
    walk();
    calls = F.call.dcgmGroupCreate.calls;
    apply(true, true);
    assert_int_equal(F.call.dcgmGroupCreate.calls, calls);
    read_now();
    assert_int_equal(health_frames, 1); // with the new list's places, at once
    // One GPU more: groups anew, the old ones given back.
    fake_dcgm_add_gpu(5, "GPU-5");
    walk();
    unsigned alive = fake_dcgm_alive();
    apply(true, true);
    assert_int_equal(fake_dcgm_alive(), alive);
    assert_int_equal(F.call.dcgmGroupCreate.calls, calls + 2);
}

static void engines_without_health_are_left_alone(void **state)
{
    static const dcgmReturn_t results[] = {DCGM_ST_MODULE_NOT_LOADED, DCGM_ST_NOT_SUPPORTED};
    stop();
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        start(4);
        walk();
        F.call.dcgmHealthSet_v2.result = results[i];
        apply(true, false);
        read_after(60 * NS_PER_S);
        assert_int_equal(health_frames, 0);
        assert_int_equal(F.call.dcgmHealthCheck.calls, 0);
        assert_true(dcgm_health_listens(h));
        stop();
    }
    start(4);
}

// While an engine starts, a module of it may be missing; a question that broke off may, too.
static void what_an_engine_lacks_is_asked_for_again_ever_later(void **state)
{
    static const dcgmReturn_t results[] = {DCGM_ST_MODULE_NOT_LOADED, DCGM_ST_NO_PERMISSION,
                                           DCGM_ST_NOT_SUPPORTED};
    stop();
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        start(4);
        walk();
        now_ns = clock_mono_ns();
        F.call.dcgmFieldGroupCreate.result = results[i]; // XIDs
        F.call.dcgmHealthSet_v2.result = results[i];
        F.call.dcgmGetNvLinkP2PStatus.result = results[i];
        apply(true, true);
        assert_false(dcgm_health_listens(h));
        unsigned rounds = 0;
        for (unsigned s = 0; s < 3600; s++) {
            unsigned before = F.call.dcgmFieldGroupCreate.calls;
            read_after(NS_PER_S);
            rounds += F.call.dcgmFieldGroupCreate.calls > before;
        }
        assert_in_range(rounds, 7, 13);
        F.call.dcgmFieldGroupCreate.result = F.call.dcgmHealthSet_v2.result = DCGM_ST_OK;
        F.call.dcgmGetNvLinkP2PStatus.result = DCGM_ST_OK;
        read_after(600 * NS_PER_S);
        assert_int_equal(health_frames, 1);
        assert_int_equal(peer_frames, 1);
        assert_true(dcgm_health_listens(h));
        stop();
    }
    start(4);
}

static void groups_that_cannot_be_made_anew_are_tried_again(void **state)
{
    walk();
    now_ns = clock_mono_ns();
    apply(true, false);
    read_after(60 * NS_PER_S);
    assert_int_equal(health_frames, 1);
    memset(F.groups, 0, sizeof(F.groups)); // another engine behind the connection
    memset(F.fields, 0, sizeof(F.fields));
    memset(F.watches, 0, sizeof(F.watches));
    F.call.dcgmHealthCheck.result = DCGM_ST_NOT_CONFIGURED;
    read_after(60 * NS_PER_S);
    F.call.dcgmHealthCheck.result = DCGM_ST_OK;
    F.call.dcgmGroupCreate.result = DCGM_ST_GENERIC_ERROR;
    now_ns += 60 * NS_PER_S;
    assert_int_equal(read_result(), DCGM_ST_GENERIC_ERROR);
    F.call.dcgmGroupCreate.result = DCGM_ST_OK;
    read_after(60 * NS_PER_S);
    assert_int_equal(health_frames, 1);
    assert_true(dcgm_health_listens(h));
}

static void what_an_engine_says_of_itself_comes_back(void **state)
{
    walk();
    apply(true, true);
    struct fake_dcgm_call *calls[] = {&F.call.dcgmGetValuesSince_v2, &F.call.dcgmHealthCheck,
                                      &F.call.dcgmGetNvLinkP2PStatus};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        now_ns += 60 * NS_PER_S;
        calls[i]->result = DCGM_ST_CONNECTION_NOT_VALID;
        assert_int_equal(read_result(), DCGM_ST_CONNECTION_NOT_VALID);
        assert_true(F.d.lost);
        F.d.lost = false;
        calls[i]->result = DCGM_ST_OK;
    }
    read_after(60 * NS_PER_S);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        calls[i]->result = DCGM_ST_TIMEOUT; // of one question
    read_after(60 * NS_PER_S);
    assert_int_equal(health_frames, 0);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        calls[i]->result = DCGM_ST_OK;
    read_after(60 * NS_PER_S);
    assert_int_equal(health_frames, 1);
    assert_int_equal(peer_frames, 1);
}

static void a_refused_watch_is_told_and_leaves_nothing_behind(void **state)
{
    static const struct {
        struct fake_dcgm_call *call;
        bool listens;
        unsigned alive; // groups, field groups, watches
    } cases[] = {
        {&F.call.dcgmGroupCreate, false, 0},      {&F.call.dcgmGroupAddEntity, false, 0},
        {&F.call.dcgmFieldGroupCreate, false, 1}, {&F.call.dcgmWatchFields, false, 1},
        {&F.call.dcgmHealthSet_v2, true, 3},
    };
    stop();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start(4);
        walk();
        cases[i].call->result = DCGM_ST_MAX_LIMIT;
        assert_int_equal(dcgm_health_apply(h, true, false, ALL, periods), DCGM_ST_MAX_LIMIT);
        assert_int_equal(dcgm_health_listens(h), cases[i].listens);
        assert_int_equal(fake_dcgm_alive(), cases[i].alive);
        cases[i].call->result = DCGM_ST_OK;
        apply(true, false); // tried again
        assert_true(dcgm_health_listens(h));
        assert_int_equal(fake_dcgm_alive(), 4);
        read_now();
        assert_int_equal(health_frames, 1);
        stop();
    }
    start(4);
}

static void groups_that_the_engine_forgot_are_made_anew(void **state)
{
    walk();
    apply(true, false);
    read_now();
    memset(F.groups, 0, sizeof(F.groups));
    memset(F.fields, 0, sizeof(F.fields));
    memset(F.watches, 0, sizeof(F.watches));
    read_after(10 * NS_PER_S);
    assert_int_equal(health_frames, 0);
    read_after(NS_PER_S);
    assert_int_equal(health_frames, 1);
    add_xid(DCGM_FE_GPU, 0, -1, 79);
    F.now_us += 10;
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
}

// --- peers ---

static void the_peer_matrix_is_read_by_its_rows(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm_add_gpu(2, "GPU-2");
    walk();
    F.peers = (dcgmNvLinkP2PStatus_v1){
        .numGpus = 4, .gpus = {{2, {5, 0, 1, 9}}, {0, {2, 5, 3, 9}}, {1, {4, 77, 5, 9}}, {9, {0}}}};
    apply(false, true);
    read_now();
    const struct frame_peer expected[] = {{2, 0, 0}, {2, 1, 1}, {0, 2, 2},
                                          {0, 1, 3}, {1, 2, 4}, {1, 0, 6}};
    assert_int_equal(peer_frames, 1);
    assert_int_equal(peer_count, ARRAY_SIZE(expected));
    assert_memory_equal(peers, expected, sizeof(expected));
    read_after(29 * NS_PER_S);
    assert_int_equal(peer_frames, 0);
    read_after(NS_PER_S);
    assert_int_equal(peer_frames, 1);
    F.peers.numGpus = 1000; // past the array
    read_after(30 * NS_PER_S);
    assert_int_equal(peer_frames, 1);
}

static void one_gpu_has_no_peers_and_says_so(void **state)
{
    walk();
    F.peers = (dcgmNvLinkP2PStatus_v1){.numGpus = 1, .gpus = {{0, {5}}}};
    apply(false, true);
    read_now();
    assert_int_equal(peer_frames, 1);
    assert_int_equal(peer_count, 0);
}

static void dcgm_3_does_not_know_of_peers(void **state)
{
    stop();
    start(3);
    walk();
    apply(false, true);
    read_now();
    assert_int_equal(peer_frames, 0);
    assert_int_equal(dcgm_health_due_ns(h), now_ns + NS_PER_S);
}

// --- XIDs ---

static void xids_are_told_once_with_whom_they_are_of(void **state)
{
    make_devices();
    apply(false, false);
    assert_true(dcgm_health_listens(h));
    uint64_t before_ns = clock_mono_ns();
    F.now_us += 1000;
    add_xid(DCGM_FE_GPU, 2, 3, 79);
    add_xid(DCGM_FE_GPU_I, 3, 2, 31);
    add_xid(DCGM_FE_GPU_CI, 4, 1, 43);
    read_now();
    assert_int_equal(event_frames, 1);
    assert_int_equal(event_count, 3);
    static const struct {
        uint32_t entity, xid, gi;
    } expected[] = {{0, 31, 5}, {0, 43, 5}, {3, 79, NONE}};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t k = 0;
        while (k < 3 && events[k].xid != expected[i].xid)
            k++;
        assert_true(k < 3);
        assert_int_equal(events[k].entity, expected[i].entity);
        assert_int_equal(events[k].gpu_instance_id, expected[i].gi);
        assert_int_equal(events[k].origin, FRAME_EVENT_DCGM);
        assert_int_equal(events[k].repeats, 0);
        assert_string_equal(events[k].text, "");
    }
    int64_t ts = F.values[F.value_count - 1].ts;
    for (uint32_t k = 0; k < 3; k++)
        if (events[k].xid == 43) {
            assert_int_equal(events[k].wall_ns, (uint64_t)ts * 1000);
            assert_true(events[k].taken_ns >= before_ns - 60 * NS_PER_S);
            assert_true(events[k].taken_ns <= clock_mono_ns());
        }
    for (unsigned i = 0; i < 20; i++) {
        F.now_us += 1000000;
        read_after(NS_PER_S);
        assert_int_equal(event_count, 0);
    }
}

static void what_was_there_before_us_is_history(void **state)
{
    walk();
    for (unsigned i = 0; i < 100; i++)
        add_xid(DCGM_FE_GPU, 0, 100 - i, 79);
    apply(false, false);
    read_now();
    assert_int_equal(event_count, 0);
    add_xid(DCGM_FE_GPU, 0, -1, 79);
    F.now_us += 10;
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
}

static void repeats_are_added_up(void **state)
{
    make_devices();
    apply(false, false);
    for (unsigned i = 0; i < 100; i++)
        add_xid(DCGM_FE_GPU, 2, 200 - i, i % 2 ? 31 : 43);
    for (unsigned i = 0; i < 3; i++)
        add_xid(DCGM_FE_GPU_I, 3, 5, 31); // at the same microsecond
    read_now();
    assert_int_equal(event_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(events[i].repeats, events[i].entity == 3 ? 49 : 2);
    add_xid(DCGM_FE_GPU_I, 3, 5, 31); // and one more of it, late
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
    assert_int_equal(events[0].repeats, 0);
}

static void an_event_of_another_gpu_with_an_earlier_time_is_not_missed(void **state)
{
    make_devices();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 2, 10, 79);
    read_now();
    assert_int_equal(event_count, 1);
    add_xid(DCGM_FE_GPU, 0, 1000, 48);
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
    assert_int_equal(events[0].xid, 48);
}

static void an_event_that_stands_at_both_kinds_of_instances_is_one(void **state)
{
    make_devices();
    apply(false, false);
    for (unsigned i = 0; i < 3; i++) {
        add_xid(DCGM_FE_GPU_I, 3, 20 - i, 43);
        add_xid(DCGM_FE_GPU_CI, 4, 20 - i, 43);
    }
    add_xid(DCGM_FE_GPU_CI, 4, 2, 31); // at the compute instance alone
    read_now();
    assert_int_equal(event_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(events[i].repeats, events[i].xid == 43 ? 2 : 0);
}

static void more_kinds_than_a_frame_holds_take_several(void **state)
{
    walk();
    apply(false, false);
    for (unsigned i = 0; i < 200; i++)
        add_xid(DCGM_FE_GPU, 0, 500 - i, 1 + i);
    read_now();
    assert_int_equal(event_count, 200);
    assert_int_equal(event_frames, 4);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(events[i].xid, 1 + i);
    read_after(NS_PER_S);
    assert_int_equal(event_count, 0);
}

static void what_is_no_xid_is_none(void **state)
{
    walk();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 0, 9, 0); // DCGM before 4.4.2 says so where it has seen none
    add_xid(DCGM_FE_GPU, 0, 8, DCGM_INT64_BLANK);
    add_xid(DCGM_FE_GPU, 0, 7, -5);
    add_xid(DCGM_FE_GPU, 0, 6, INT64_C(1) << 32);
    add_xid(DCGM_FE_GPU, 0, 5, 79);
    F.values[F.value_count - 1].status = DCGM_ST_NO_DATA;
    add_xid(DCGM_FE_GPU, 0, 4, 79);
    F.values[F.value_count - 1].type = DCGM_FT_STRING;
    F.values[F.value_count - 1].text = "79";
    add_xid(DCGM_FE_GPU, 0, F.now_us, 79); // at time 0
    fake_dcgm_add_sample(DCGM_FE_GPU, 0, 231, F.now_us - 3, 79);
    read_now();
    assert_int_equal(event_count, 0);
}

static void clocks_that_are_not_ours_do_not_make_the_times(void **state)
{
    walk();
    F.now_us -= INT64_C(86400000000);
    apply(false, false);
    add_xid(DCGM_FE_GPU, 0, 1, 79);
    uint64_t before_ns = clock_wall_ns();
    read_now();
    assert_int_equal(event_count, 1);
    assert_true(events[0].wall_ns >= before_ns && events[0].wall_ns <= clock_wall_ns());
}

static void lose_connection(void)
{
    dcgm_health_forget(h);
    dcgm_devices_forget(&v);
    memset(F.groups, 0, sizeof(F.groups));
    memset(F.fields, 0, sizeof(F.fields));
    memset(F.watches, 0, sizeof(F.watches));
    assert_false(dcgm_health_listens(h));
    assert_true(dcgm_health_due_ns(h) == UINT64_MAX);
}

static void nothing_is_lost_or_told_twice_over_a_reconnect(void **state)
{
    make_devices();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 2, 10, 79);
    add_xid(DCGM_FE_GPU_I, 3, 9, 31);
    read_now();
    assert_int_equal(event_count, 2);
    lose_connection();
    add_xid(DCGM_FE_GPU, 0, 5, 48);
    add_xid(DCGM_FE_GPU_I, 3, 4, 31);
    walk();
    apply(false, false);
    read_after(NS_PER_S);
    assert_int_equal(event_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(events[i].gpu_instance_id, events[i].xid == 31 ? 5 : NONE);
    // The engine started anew with other ids; its cache is empty.
    lose_connection();
    F.value_count = 0;
    F.hierarchy.count = 0;
    F.gpu[0].id = 6;
    walk();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 6, -1, 48);
    F.now_us += 10;
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
    assert_int_equal(events[0].xid, 48);
}

static void what_another_engine_had_is_history(void **state)
{
    walk();
    sv_copy(F.d.address, sizeof(F.d.address), SV("embedded"));
    apply(false, false);
    lose_connection();
    sv_copy(F.d.address, sizeof(F.d.address), SV("localhost:5555"));
    add_xid(DCGM_FE_GPU, 0, 5, 48);
    walk();
    apply(false, false);
    read_after(NS_PER_S);
    assert_int_equal(event_count, 0);
}

static void a_list_that_changes_loses_no_event(void **state)
{
    walk();
    apply(false, false);
    fake_dcgm_add_gpu(1, "GPU-1");
    add_xid(DCGM_FE_GPU, 0, 5, 48);
    add_xid(DCGM_FE_GPU, 1, 4, 79); // history: GPU 1 is new
    walk();
    apply(false, false);
    F.gpu[0].id = 7; // between the look and the frame
    walk();
    read_now();
    assert_int_equal(event_count, 0); // no such GPU any more
    F.gpu[0].id = 0;
    walk();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 1, 3, 13);
    read_after(NS_PER_S);
    assert_int_equal(event_count, 1);
    assert_int_equal(events[0].entity, 1);
}

// What was sampled long before is not asked for again and again.
static void looks_ask_for_the_last_seconds(void **state)
{
    make_devices();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 2, 10, 79);
    read_now();
    assert_int_equal(F.since_us, 0);
    int64_t newest = F.values[F.value_count - 1].ts;
    lose_connection();
    F.gpus = 1; // GPU 2 is gone before its marks begin anew
    sv_copy(F.d.address, sizeof(F.d.address), SV("elsewhere"));
    walk();
    apply(false, false);
    add_xid(DCGM_FE_GPU, 0, 5, 31);
    read_after(NS_PER_S);
    read_after(NS_PER_S);
    assert_int_equal(F.since_us, newest + 5 - 5000000);
}

static void large_lists_take_several_groups(void **state)
{
    for (unsigned i = 0; i < 7; i++) {
        fake_dcgm_add_instance(0, i, i, 1);
        for (unsigned k = 0; k < 10; k++)
            fake_dcgm_add_compute(i, i * 10 + k, i, k);
    }
    walk();
    assert_int_equal(v.count, 78);
    apply(false, false);
    assert_int_equal(F.call.dcgmGroupCreate.calls, 2);
    assert_int_equal(F.groups[0].count, 64);
    assert_int_equal(F.groups[1].count, 14);
    add_xid(DCGM_FE_GPU_CI, 69, 1, 43);
    add_xid(DCGM_FE_GPU, 0, 1, 79);
    read_now();
    assert_int_equal(event_count, 2);
}

static void without_gpus_nothing_is_watched(void **state)
{
    F.gpus = 0;
    F.switches = 1;
    walk();
    apply(true, false);
    assert_false(dcgm_health_listens(h));
    assert_int_equal(fake_dcgm_alive(), 0);
    assert_true(dcgm_health_due_ns(h) == UINT64_MAX);
}

static void sweep_work(void)
{
    struct dcgm_devices list = {0};
    struct dcgm_health *health = NULL;
    struct buf out = BUF_INIT(LIMIT_FRAME_BYTES);
    bool changed;
    fake_dcgm_reset(4);
    fake_dcgm_add_gpu(1, "GPU-1");
    F.now_us = (long long)(clock_wall_ns() / 1000);
    if (dcgm_health_new(&F.d, &list, &health) == 0 &&
        dcgm_devices_walk(&F.d, &list, &changed) == DCGM_ST_OK &&
        dcgm_health_apply(health, true, true, ALL, periods) == DCGM_ST_OK) {
        add_xid(DCGM_FE_GPU, 0, 1, 79);
        dcgmReturn_t result = dcgm_health_read(health, NS_PER_S, &out);
        assert_true(result == DCGM_ST_OK || result == DCGM_ST_MEMORY);
        assert_true((result == DCGM_ST_OK) == !allocation_failed);
    } else {
        assert_true(allocation_failed);
    }
    dcgm_health_free(health);
    dcgm_devices_deinit(&list);
    buf_deinit(&out);
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void a_lack_of_memory_is_told(void **state)
{
    stop();
    assert_true(allocation_sweep(sweep_work) >= 5);
    start(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(incidents_are_verdicts_of_their_gpus),
        CASE(of_several_incidents_of_one_system_the_last_stands),
        CASE(incidents_that_say_nothing_of_a_gpu_are_left_out),
        CASE(a_count_past_the_incidents_is_cut),
        CASE(health_is_checked_each_medium_period),
        CASE(the_gpus_that_are_asked_for_have_verdicts),
        CASE(the_same_wish_costs_nothing),
        CASE(engines_without_health_are_left_alone),
        CASE(what_an_engine_lacks_is_asked_for_again_ever_later),
        CASE(groups_that_cannot_be_made_anew_are_tried_again),
        CASE(what_an_engine_says_of_itself_comes_back),
        CASE(a_refused_watch_is_told_and_leaves_nothing_behind),
        CASE(groups_that_the_engine_forgot_are_made_anew),
        CASE(the_peer_matrix_is_read_by_its_rows),
        CASE(one_gpu_has_no_peers_and_says_so),
        CASE(dcgm_3_does_not_know_of_peers),
        CASE(xids_are_told_once_with_whom_they_are_of),
        CASE(what_was_there_before_us_is_history),
        CASE(repeats_are_added_up),
        CASE(an_event_of_another_gpu_with_an_earlier_time_is_not_missed),
        CASE(an_event_that_stands_at_both_kinds_of_instances_is_one),
        CASE(more_kinds_than_a_frame_holds_take_several),
        CASE(what_is_no_xid_is_none),
        CASE(clocks_that_are_not_ours_do_not_make_the_times),
        CASE(nothing_is_lost_or_told_twice_over_a_reconnect),
        CASE(what_another_engine_had_is_history),
        CASE(a_list_that_changes_loses_no_event),
        CASE(looks_ask_for_the_last_seconds),
        CASE(large_lists_take_several_groups),
        CASE(without_gpus_nothing_is_watched),
        CASE(a_lack_of_memory_is_told),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
