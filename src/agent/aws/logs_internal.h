// SPDX-License-Identifier: Apache-2.0
// Shared by the files of agent/aws/logs: requests (logs_op.c), making of groups and streams
// (logs_place.c), batches (logs.c).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/logs.h"
#include "agent/aws/logs_wire.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"

// A ring through its members; a head alone, or a member in no list, points to itself.
struct logs_link {
    struct logs_link *previous, *next;
};
void logs_link_init(struct logs_link *l);
bool logs_link_is_alone(const struct logs_link *l);
void logs_link_add(struct logs_link *before, struct logs_link *l); // a head: at the end
void logs_link_remove(struct logs_link *l);
// All members of from, in order, to the start of to.
void logs_link_splice(struct logs_link *to, struct logs_link *from);

// --- One signed request ---

enum logs_action {
    LOGS_PUT_EVENTS,
    LOGS_CREATE_GROUP,
    LOGS_PUT_RETENTION,
    LOGS_CREATE_STREAM,
};

enum logs_op_state {
    LOGS_OP_IDLE,
    LOGS_OP_QUEUED,   // for one of the connections
    LOGS_OP_AWAITING, // credentials
    LOGS_OP_RUNNING,
    LOGS_OP_FAILING, // at the next turn
};

struct logs_request {
    enum logs_action action;
    struct sv body;   // borrowed until done
    size_t events;    // in it
    bool is_insights; // to be told in the User-Agent
};

struct logs_op {
    struct aws_logs *logs;
    struct logs_link link; // in queued or awaiting
    struct loop_timer *timer;
    enum logs_op_state state;
    struct logs_request request;
    void (*done)(void *user, const struct logs_answer *answer);
    void *user;
    struct http_handle *handle;
    struct http_call *call;
    struct logs_answer answer;
    int64_t signed_offset_s;
    uint64_t signed_keys; // a hash of them
    bool is_woken;        // the credentials may have changed since it waits
    bool has_renewed;     // the keys of that hash were refused
    bool has_set_clock;
    bool is_gzip;
};

// 0, -ENOMEM. In the caller's storage, which stays where it is.
int must_use logs_op_init(struct logs_op *op, struct aws_logs *logs);
void logs_op_deinit(struct logs_op *op); // cancels; allowed inside done
// done comes once, not from inside the call; op may be started again, or freed, inside it.
void logs_op_start(struct logs_op *op, const struct logs_request *request,
                   void (*done)(void *user, const struct logs_answer *answer), void *user);
// The same, with an answer of our own.
void logs_op_fail(struct logs_op *op, enum logs_fault fault, const char *text,
                  void (*done)(void *user, const struct logs_answer *answer), void *user);
void logs_on_credentials(void *user); // user: struct aws_logs
void logs_wake(void *user);           // the same: who waits looks again

// --- Groups and streams ---

struct logs_waiter {
    struct logs_link link;
    void (*ready)(void *user, const struct logs_answer *answer);
    void *user;
};
void logs_waiter_cancel(struct logs_waiter *w);

// Makes the stream, and its group before it if need be. Joins who does already. ready comes once,
// not from inside the call, unless cancelled before. 0, -ENOMEM, -E2BIG (LIMIT_LOGS_MAKERS).
int must_use logs_make_stream(struct aws_logs *l, struct sv group, struct sv stream,
                              struct logs_waiter *w);
void logs_makers_free(struct aws_logs *l);

// --- All of it ---

struct aws_logs {
    const struct aws_env *env;
    struct aws_credentials *credentials; // NULL once it is gone
    char *region, *url;
    const char *ca_file; // of the environment, or NULL
    unsigned retention_days;
    uint64_t deadline_ns;
    bool is_plain;          // the service does not read gzip
    int64_t clock_offset_s; // that requests are signed with
    struct logs_stats stats;
    struct loop_timer *wake;
    struct logs_link queued, awaiting;
    unsigned running;
    struct http_handle *idle[LIMIT_LOGS_CONNECTIONS];
    size_t idle_count;
    struct map makers;          // by group, NUL, stream (empty: the group itself)
    struct logs_link lingering; // made groups whose retention is still to be set
    size_t lingering_count;
    size_t call_count; // alive
    bool is_gone;      // but for them
};
