// SPDX-License-Identifier: Apache-2.0
// A million samples of random lives in virtual time: whatever is told, the ledger adds up on each
// page, to the last digit of its text; no counter that is shown goes down; a frozen one stands.
// PODGPU_TEST_SEED takes the place of the seed, which a failure prints.
#include "ledger_bench.h"

#include "base/buf.h"
#include "base/map.h"
#include "base/num.h"
#include "metrics/text.h"

#define BOARDS 4
#define INSTANCES 3 // of each board, while it is under MIG
#define DEVICES (BOARDS * (1 + INSTANCES))
#define PODS 12
#define SHOWN_MOST 1024
#define LINGER_NS (20 * NS_PER_S)
// An ended account's last intervals are booked until then.
#define FROZEN_NS (10 * NS_PER_S)

static uint64_t seed, random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % n;
}

static bool one_in(uint64_t n)
{
    return random_below(n) == 0;
}

struct shown { // a counter of a page
    uint64_t device_hash, container_hash;
    uint64_t busy_us, energy_uj, allocated_us;
    uint64_t ended_ns; // 0: live
};

struct world {
    struct ledger *l;
    uint64_t now_ns;
    bool is_mig[BOARDS], is_away[BOARDS];
    unsigned layout[BOARDS];   // grows with each MIG layout
    unsigned generation[PODS]; // of its UID
    struct ledger_device_info list[DEVICES];
    char uuids[DEVICES][32];
    size_t listed;
    uint64_t mj[BOARDS], told_ns[DEVICES];
    struct shown shown[SHOWN_MOST];
    size_t shown_count;
    uint64_t samples, restarts, live_seen, frozen_seen;
};

static void list_devices(struct world *w)
{
    w->listed = 0;
    for (uint32_t b = 0; b < BOARDS; b++) {
        if (w->is_away[b])
            continue;
        uint32_t board = (uint32_t)w->listed;
        for (uint32_t i = 0; i <= (w->is_mig[b] ? INSTANCES : 0u); i++) {
            char *uuid = w->uuids[w->listed];
            (void)snprintf(uuid, sizeof(w->uuids[0]), "%s-%u-%u-%u", i ? "MIG" : "GPU", b, i,
                           i ? w->layout[b] % 5 : 0);
            w->list[w->listed++] = (struct ledger_device_info){
                .uuid = uuid,
                .board = board,
                .has_instances = w->is_mig[b] && i == 0,
                .slices = i,
                .total_slices = i ? 7 : 0,
            };
        }
    }
    assert_int_equal(ledger_set_devices(w->l, w->list, w->listed, w->now_ns), 0);
    for (size_t i = 0; i < DEVICES; i++)
        w->told_ns[i] = w->now_ns;
}

static void begin(struct world *w)
{
    struct ledger_options o = {.linger_ns = LINGER_NS};
    ledger_free(w->l);
    assert_int_equal(ledger_new(&o, &w->l), 0);
    w->shown_count = 0;
    list_devices(w);
}

static uint32_t some_container(struct world *w)
{
    unsigned n = (unsigned)random_below(PODS + 1);
    if (n == PODS)
        return LEDGER_NONE;
    char name[16], uid[32];
    (void)snprintf(name, sizeof(name), "pod-%u", n);
    (void)snprintf(uid, sizeof(uid), "uid-%u-%u", n, w->generation[n] - one_in(20));
    return named(w->l, name, one_in(10) ? "" : uid);
}

static uint64_t some_time(const struct world *w)
{
    if (one_in(50))
        return random_state; // of no sense
    return w->now_ns + random_below(100 * NS_PER_MS) - random_below(NS_PER_S);
}

static void change_holders(struct world *w, uint32_t device)
{
    struct ledger_holder h[4];
    size_t count = random_below(5);
    for (size_t i = 0; i < count; i++)
        h[i] = (struct ledger_holder){some_container(w), (uint32_t)random_below(4)};
    assert_int_equal(ledger_set_holders(w->l, device, one_in(8) ? some_time(w) : w->now_ns, h,
                                        count, (uint32_t)random_below(10)),
                     0);
}

static void tell_processes(struct world *w, uint32_t device)
{
    struct ledger_process p[8];
    size_t count = random_below(9);
    for (size_t i = 0; i < count; i++)
        p[i] = (struct ledger_process){some_container(w), one_in(4),
                                       one_in(9) ? UINT64_MAX : random_below(GIB)};
    assert_int_equal(
        ledger_set_processes(w->l, device, w->now_ns, p, count, !one_in(9), !one_in(9)), 0);
}

static void tell_spans(struct world *w, uint32_t device)
{
    uint64_t from = one_in(30) ? some_time(w) : w->told_ns[device];
    uint64_t end = w->now_ns - random_below(one_in(10) ? 3 * NS_PER_S : 200 * NS_PER_MS);
    while (from < end && end - from < 10 * NS_PER_S) {
        uint64_t to = from + 1 + random_below(400 * NS_PER_MS);
        uint32_t ppm = (uint32_t)random_below(1000001);
        assert_int_equal(ledger_add_busy(w->l, device, from, to, ppm, true), 0);
        for (uint64_t i = random_below(4); i > 0; i--)
            assert_int_equal(ledger_add_share(w->l, device, some_container(w), from, to,
                                              (uint32_t)random_below(1000001)),
                             0);
        from = to;
        w->told_ns[device] = to;
    }
    struct ledger_reach reach = {w->now_ns, !one_in(50), !one_in(20), w->told_ns[device],
                                 w->told_ns[device]};
    ledger_reach(w->l, device, &reach);
}

static void tell_energy(struct world *w, uint32_t device)
{
    uint64_t *mj = &w->mj[device % BOARDS];
    *mj = one_in(200) ? random_below(1000) : *mj + random_below(700000);
    assert_int_equal(ledger_add_energy(w->l, device, w->now_ns, *mj), 0);
}

static void sample_device(struct world *w, uint32_t device)
{
    w->samples++;
    if (one_in(100))
        ledger_gap(w->l, device, one_in(9) ? some_time(w) : w->now_ns);
    if (one_in(40))
        return; // it does not answer
    tell_spans(w, device);
    if (!one_in(50))
        tell_energy(w, device);
    if (one_in(50))
        ledger_clear_processes(w->l, device, w->now_ns);
    else
        tell_processes(w, device);
    ledger_add_memory(w->l, device, w->now_ns, random_below(GIB), GIB);
    if (one_in(15))
        change_holders(w, device);
}

static void change_world(struct world *w)
{
    unsigned b = (unsigned)random_below(BOARDS), n = (unsigned)random_below(PODS);
    if (one_in(10))
        w->generation[n]++;
    if (one_in(2000)) {
        w->restarts++;
        begin(w);
    }
    bool is_new = one_in(60);
    if (is_new)
        w->is_away[b] = !w->is_away[b];
    if (one_in(60)) {
        w->is_mig[b] = one_in(2);
        w->layout[b]++;
        is_new = true;
    }
    if (is_new)
        list_devices(w);
}

// --- What a page of it is held to ---

static void add_text(struct buf *text, uint64_t units)
{
    buf_reset(text);
    text_add_fixed(text, units, 6);
}

// A plain decimal with six decimals, back to its integer.
static uint64_t read_text(const struct buf *text)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        if (text->data[i] != '.')
            n = n * 10 + (uint64_t)(text->data[i] - '0');
    assert_true(text->len > 7 && text->data[text->len - 7] == '.');
    return n;
}

static uint64_t printed(struct buf *text, uint64_t units)
{
    add_text(text, units);
    return read_text(text);
}

static void check_sums(const struct world *w, struct buf *text)
{
    uint64_t busy[256] = {0}, energy[256] = {0};
    size_t count = ledger_device_count(w->l);
    assert_true(count <= 256);
    for (size_t i = 0; i < ledger_account_count(w->l); i++) {
        const struct ledger_account *a = ledger_account_at(w->l, i);
        busy[a->device] += printed(text, a->busy_us);
        energy[ledger_device_at(w->l, a->device)->board] += printed(text, a->energy_uj);
    }
    for (size_t i = 0; i < count; i++) {
        const struct ledger_device *d = ledger_device_at(w->l, i);
        assert_int_equal(busy[i] + printed(text, d->ended_busy_us) +
                             printed(text, d->unattributed_busy_us),
                         printed(text, d->busy_us));
        if (d->board == i)
            assert_int_equal(energy[i] + printed(text, d->ended_energy_uj) +
                                 printed(text, d->unattributed_energy_uj),
                             printed(text, d->energy_uj));
    }
}

static uint64_t hash(const char *const *texts, size_t count)
{
    uint64_t h = 1;
    for (size_t i = 0; i < count; i++)
        h = map_siphash13(h, 1, sv_from(texts[i]));
    return h;
}

static struct shown *find_shown(struct world *w, const struct shown *s)
{
    for (size_t i = 0; i < w->shown_count; i++)
        if (w->shown[i].device_hash == s->device_hash &&
            w->shown[i].container_hash == s->container_hash)
            return &w->shown[i];
    return NULL;
}

static void check_account(struct world *w, const struct ledger_account *a, struct shown *now)
{
    const struct ledger_container *c = ledger_container_at(w->l, a->container);
    *now = (struct shown){
        .device_hash = hash(&ledger_device_at(w->l, a->device)->uuid, 1),
        .container_hash = hash((const char *const[]){c->pod, c->pod_uid}, 2),
        .busy_us = a->busy_us,
        .energy_uj = a->energy_uj,
        .allocated_us = a->allocated_us,
    };
    struct shown *before = find_shown(w, now);
    if (a->live)
        w->live_seen++;
    else
        now->ended_ns = before && before->ended_ns ? before->ended_ns : w->now_ns;
    if (!before)
        return;
    assert_true(a->busy_us >= before->busy_us && a->energy_uj >= before->energy_uj &&
                a->allocated_us >= before->allocated_us);
    // A share that is told after the end is its own; then the end was later.
    bool grows = a->busy_us > before->busy_us || a->energy_uj > before->energy_uj;
    if (!a->live && grows)
        now->ended_ns = w->now_ns;
    w->frozen_seen += !a->live && w->now_ns - now->ended_ns > FROZEN_NS;
}

static void check_page(struct world *w, struct buf *text)
{
    assert_true(ledger_adds_up(w->l));
    check_sums(w, text);
    static struct shown now[SHOWN_MOST];
    size_t count = ledger_account_count(w->l);
    assert_true(count <= SHOWN_MOST);
    for (size_t i = 0; i < count; i++)
        check_account(w, ledger_account_at(w->l, i), &now[i]);
    memcpy(w->shown, now, count * sizeof(*now));
    w->shown_count = count;
}

static void a_million_samples_add_up(void **state)
{
    cleanup(buf_deinit) struct buf text = BUF_INIT(64);
    static struct world w;
    w = (struct world){.now_ns = T0};
    for (unsigned i = 0; i < PODS; i++)
        w.generation[i] = 1;
    random_state = seed;
    begin(&w);
    while (w.samples < 1000000) {
        w.now_ns +=
            one_in(500) ? random_below(100 * NS_PER_S) : 500 * NS_PER_MS + random_below(NS_PER_S);
        change_world(&w);
        for (uint32_t i = 0; i < w.listed; i++)
            sample_device(&w, i);
        assert_int_equal(ledger_book(w.l, one_in(100) ? w.now_ns - NS_PER_S : w.now_ns), 0);
        check_page(&w, &text);
    }
    struct ledger_stats s;
    ledger_get_stats(w.l, &s);
    assert_true(w.restarts > 10 && w.live_seen > 100000 && w.frozen_seen > 1000);
    assert_true(s.intervals > 0 && s.scaled > 0 && s.gaps > 0 && s.holder_changes > 0);
    ledger_free(w.l);
}

static int read_seed(void)
{
    const char *given = getenv("PODGPU_TEST_SEED");
    seed = 20261201;
    return given ? num_parse_u64(sv_from(given), 1, UINT64_MAX, &seed) : 0;
}

int main(void)
{
    if (read_seed() < 0)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_million_samples_add_up)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed)
        (void)fprintf(stderr, "seed: PODGPU_TEST_SEED=%llu\n", (unsigned long long)seed);
    return failed;
}
