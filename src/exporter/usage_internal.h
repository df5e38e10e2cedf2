// SPDX-License-Identifier: Apache-2.0
// What the files of usage share.
#pragma once

#include "base/arena.h"
#include "exporter/usage.h"

#define USAGE_NONE SIZE_MAX

struct usage_holder { // texts lie in usage.names
    const char *namespace_name, *pod, *container;
    uint32_t since; // as in struct pod_device
    uint32_t replicas;
};

// A process of a device: listed, or known from a share alone (it has ended).
struct usage_runner {
    uint32_t pid;
    uint32_t container; // LEDGER_NONE: nobody who is known
    uint64_t start_ticks;
    uint64_t looked_ns;    // when its identity was asked for
    uint64_t memory_bytes; // UINT64_MAX: not known
    uint64_t sm_to_ns;     // end of its last share; 0: none in this frame
    uint32_t sm_ppm;
    uint8_t kind; // enum process_kind
    bool listed;
    bool own;     // of the exporter's own pod
    bool foreign; // known not to be of the sole holder's
    bool server;  // an MPS server
    bool client;  // of one
    bool reused;  // another process had the pid in the frame before
    bool unnamed; // of a pod that nobody knows the name of
    char pod_uid[POD_UID_BYTES];
    char container_id[CONTAINER_ID_BYTES];
};

// Its place in the list is the ledger's.
struct usage_device {
    char uuid[96];
    size_t entity;      // place in view.primary
    uint32_t board;     // place in this list; its own: a board
    bool has_instances; // a board under MIG
    bool of_share;      // DCGM tells activity as a share of the board (Ampere)
    uint32_t slices, total_slices;

    struct usage_holder *holders; // in usage.names
    size_t holder_count;
    uint32_t offered;
    struct ledger_holder *told; // what the ledger was told; owned
    size_t told_count;
    uint32_t told_offered;
    bool told_any;

    struct usage_runner *runners; // ascending by pid; owned
    size_t runner_count;
    uint32_t flags; // of the last USAGE frame
    bool seen;      // one has come
    bool has_server;
    bool by_client; // shares under MPS carry the clients' pids
    bool hidden;    // an MPS server runs and none of its clients is listed
    bool disagrees; // held by one and used by another

    uint64_t dcgm_ns;   // end of the last value of DCGM's; 0: none
    uint64_t dcgm_step; // shortest distance of two; 0 not known
};

// A pod named by elimination.
struct usage_binding {
    char uid[POD_UID_BYTES];
    char *namespace_name, *pod; // owned
    uint32_t since;
    uint64_t noted_ns; // first seen so
    uint64_t seen_ns;  // the UID ran last
    bool active;
    bool confirmed; // in this frame
};

struct usage {
    struct usage_config config;
    struct usage_device *devices;
    size_t device_count;
    struct arena names;
    uint64_t owners_ns; // times of holders ascend
    struct usage_binding *bindings;
    size_t binding_count;
    struct usage_stats stats;
};

// usage.c
struct usage_device *usage_device_of(const struct usage *u, const struct device_view *view,
                                     enum device_source source, uint32_t listed);
struct usage_runner *usage_find_runner(const struct usage_device *d, uint32_t pid);
// The same; *place is where the one before was found, because shares come by time and pid.
struct usage_runner *usage_next_runner(const struct usage_device *d, uint32_t pid, size_t *place);
// Tells the ledger who holds the device where that has changed. 0, -ENOMEM.
int must_use usage_tell_holders(struct usage *u, size_t device, uint64_t at_ns);

// usage_names.c
const char *usage_uid_of(const struct usage *u, const char *namespace_name, const char *pod);
bool usage_is_own(const struct usage *u, const char *namespace_name, const char *pod);
// Works out what is named by elimination, from the runners of all devices. 0, -ENOMEM.
int must_use usage_eliminate(struct usage *u, uint64_t now_ns);
// Gives the runners of a device their containers. 0, -ENOMEM.
void usage_name_runners(struct usage *u, struct usage_device *d);
void usage_forget_names(struct usage *u);

// usage_stats.c
void usage_count(struct usage *u);
