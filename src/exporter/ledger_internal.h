// SPDX-License-Identifier: Apache-2.0
// What the files of the ledger share: ledger.c (devices, what stands), ledger_containers.c
// (containers, accounts, their end), ledger_facts.c (what is told), ledger_spans.c (time that waits
// to be booked), ledger_book.c (intervals).
//
// Facts wait in the device until an interval of its board is complete: spans, shares, sets of
// holders, looks at its processes, and at the board the marks where intervals end. Booking needs no
// memory: what it takes is set aside when facts come, so a booking is never half done.
#pragma once

#include "base/limits.h"
#include "base/map.h"
#include "exporter/ledger.h"

#define LEDGER_MARKS 16       // of a board: intervals that wait; more are joined
#define LEDGER_LOOKS 16       // changes of what processes prove
#define LEDGER_SETS 16        // changes of holders
#define LEDGER_NUMBER_BOOKS 8 // bookings for which a container's number is kept without use
#define LEDGER_HOLDERS 1024   // of a device: more than a node has pods
#define LEDGER_REPLICAS (1u << 20)
#define LEDGER_SLICES 1024
#define LEDGER_INTERVAL_NS (3600 * NS_PER_S)  // longer ones, and longer spans, are none
#define LEDGER_BYTES_MOST (UINT64_C(1) << 50) // of memory: 1 PiB
// A board's counter that runs faster than this was not read right: 100 kW, and a second's worth for
// a counter that is renewed seldom.
#define LEDGER_POWER_W 100000

typedef unsigned __int128 ledger_wide; // parts of a microsecond in ns * ppm, and products

struct ledger_owner {
    struct ledger_container pub; // its strings follow the struct
    uint32_t number;
    uint32_t uses;                 // in sets of holders and shares
    bool superseded;               // another UID has its names
    uint64_t asked_book;           // bookings done when it was asked for last
    struct ledger_entry *accounts; // its, over all devices
    char *pod_uid;
    size_t key_len;
};

// An account.
struct ledger_entry {
    struct ledger_account pub;
    struct ledger_unit *device;
    struct ledger_owner *container;
    struct ledger_entry *next_of_container;
    struct ledger_entry *ended_before, *ended_after; // in the list of ended ones
    bool is_live, holds, runs;
    bool had_busy; // evidence of busy time, once
    uint32_t replicas;
    uint64_t began_ns, ended_ns;
    uint64_t allocated_ns;
    uint64_t idle_since_ns;
    ledger_wide share; // busy time that waits to be booked
    bool is_party;
    uint8_t shown; // of its flags, by ledger_refresh
    uint32_t processes;
    bool memory_unknown;
    uint64_t memory;
};

struct ledger_span {
    uint64_t from_ns, to_ns;
    uint32_t ppm;
};

struct ledger_share {
    uint64_t from_ns, to_ns;
    uint32_t ppm;
    struct ledger_owner *container; // NULL: nobody
};

// Who holds from at_ns on, in order of container.
struct ledger_set {
    uint64_t at_ns;
    uint32_t offered, held; // replicas
    bool other;             // other containers than the set before has
    size_t count;
    struct ledger_set_holder {
        struct ledger_owner *container; // NULL: nobody who is known
        uint32_t replicas;
    } holders[];
};

struct ledger_set_wanted {
    uint64_t at_ns;
    const struct ledger_holder *holders;
    size_t count;
    uint32_t offered;
};

// What the processes proved at a time and, the last one before an interval, through it.
struct ledger_look {
    uint64_t at_ns;
    bool foreign, evidence;
};

// A place in a board's time where an interval ends.
struct ledger_mark {
    uint64_t at_ns, mj;
    bool has_mj, is_look;
    bool is_gap;
};

struct ledger_unit {
    struct ledger_device pub;
    char *uuid;
    struct ledger_unit *board; // itself: a board
    bool has_instances;
    bool is_ignored; // an entry of the list that names nothing; gone with it
    bool is_new;
    uint8_t shown; // of its flags, by ledger_refresh
    uint32_t place;
    uint64_t stamp;
    uint64_t away_ns; // since when it is not in the list, else UINT64_MAX
    uint32_t slices, total_slices;
    size_t member_first, member_count; // board: in ledger.members

    struct ledger_span *spans;
    size_t span_count, span_room;
    uint64_t span_end_ns; // of the last one told
    struct ledger_share *shares;
    size_t share_count, share_room;
    ledger_wide busy; // waits to be booked
    ledger_wide nobody_share, folded_share;
    bool has_busy, has_shares;
    uint64_t busy_to_ns, shares_to_ns;

    struct ledger_set *sets[LEDGER_SETS]; // the first one holds at the start of the open interval
    size_t set_count;
    struct ledger_look looks[LEDGER_LOOKS]; // likewise
    size_t look_count;
    uint64_t void_from_ns, void_to_ns; // intervals that reach into it are not booked

    struct ledger_mark marks[LEDGER_MARKS]; // board
    size_t mark_count;
    struct ledger_mark base; // where the open interval began
    bool has_base;
    uint64_t begun_ns; // when it last began anew: what is told of before counts for nothing

    struct ledger_entry **accounts; // in order of first appearance
    size_t account_count, account_room;
    bool knows_processes, busy_evidence, memory_evidence, foreign;
    bool has_memory, answers; // as of the last look
    uint64_t driver_memory, nobody_memory;
};

// One of those who share an interval.
struct ledger_party {
    struct ledger_entry *account; // NULL: see kind
    enum ledger_party_kind {
        LEDGER_PARTY_ACCOUNT,
        LEDGER_PARTY_FOLDED, // a container whose account has gone: what it gets has ended
        LEDGER_PARTY_NOBODY, // not known: what it gets is unattributed
    } kind;
    bool is_rest; // all shares of such
    uint32_t replicas;
    uint64_t busy_us;
    uint64_t left; // of scaling
    size_t place;
};

struct ledger {
    struct ledger_options options;
    struct ledger_unit **devices; // those of the list, in its order, then those away
    size_t device_count, listed;
    struct ledger_unit **members; // by board
    struct map by_uuid;
    struct ledger_owner **containers; // by number, with holes
    size_t container_count, container_hint, containers_known, superseded_count;
    struct map by_names;
    struct ledger_entry **accounts; // as shown
    size_t account_count, account_room, accounts_known;
    struct ledger_entry *ended_first, *ended_last;
    size_t ended_count;
    struct ledger_party *parties; // for one booking
    size_t party_room;
    bool is_stale; // accounts is not what there is
    uint64_t stamp, books, layout;
    struct ledger_stats stats;
};

// --- ledger.c ---
// The device of a place in the list; NULL: there is none to tell facts of (counted).
struct ledger_unit *ledger_find_device(struct ledger *l, uint32_t place);
void ledger_refresh(struct ledger *l); // what stands, from what is

// --- ledger_containers.c ---
struct ledger_owner *ledger_find_owner(const struct ledger *l, uint32_t number); // or NULL
struct ledger_entry *ledger_find_account(const struct ledger_unit *d, const struct ledger_owner *c);
// The account of a container on a device, an ended one where there was none. 0 and NULL: refused.
int must_use ledger_make_account(struct ledger *l, struct ledger_unit *d, struct ledger_owner *c,
                                 uint64_t at_ns, struct ledger_entry **out);
int must_use ledger_reserve_parties(struct ledger *l, size_t accounts);
// Live or ended, from what it holds and runs.
void ledger_settle_account(struct ledger *l, struct ledger_entry *a, uint64_t at_ns);
void ledger_touch_ended(struct ledger *l, struct ledger_entry *a, uint64_t at_ns);
void ledger_fold_account(struct ledger *l, struct ledger_entry *a);
void ledger_fold_device(struct ledger *l, struct ledger_unit *d);
void ledger_fold_ended(struct ledger *l, uint64_t now_ns); // linger is over, or too many
void ledger_forget_containers(struct ledger *l);           // that nobody refers to any more
void ledger_containers_deinit(struct ledger *l);

// --- ledger_spans.c ---
int must_use ledger_push_span(struct ledger_unit *d, struct ledger_span s);
int must_use ledger_push_share(struct ledger_unit *d, struct ledger_share s);
// Moves what lies between into the device's and accounts' waiting time, and forgets what ends
// before to_ns. count false: forgets alone.
void ledger_cut_spans(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns, bool count);
void ledger_cut_shares(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns, bool count);
void ledger_drop_facts(struct ledger_unit *d); // all that waits

// --- ledger_facts.c ---
void ledger_set_free(struct ledger_set *s);
// Ends who holds and runs: the device is away.
void ledger_leave_device(struct ledger *l, struct ledger_unit *d, uint64_t at_ns);
void ledger_void(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns);
void ledger_mark_gap(struct ledger *l, struct ledger_unit *board, uint64_t at_ns);

// --- ledger_book.c ---
void ledger_book_board(struct ledger *l, struct ledger_unit *board, uint64_t now_ns);
