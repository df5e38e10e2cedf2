// SPDX-License-Identifier: Apache-2.0
// One podgpu-source process: spawn, socket, call page, frames in, WATCH and CONTROL out. What its
// troubles mean is decided by its owner, source_process.c.
#pragma once

#include "base/error.h"
#include "gpu/frame.h"
#include "io/loop.h"

struct source_helper;

struct source_helper_events {
    // A checked frame other than HELLO; borrowed during the call.
    void (*frame)(void *user, const struct frame *frame);
    // It does not keep to the protocol: what is static text. Frames have ended; to be killed.
    void (*broken)(void *user, const char *what);
    // The process is gone and reaped, killed or not. Frames it sent before its end have been passed
    // on.
    void (*ended)(void *user, int exit_status, int term_signal);
};

struct source_helper_config {
    char *const *argv; // [0]: the program's path
    const struct source_helper_events *events;
    void *user;
};
// The helper may be killed and freed from inside every event.
// 0; negative errno with *err.
int must_use source_helper_new(struct loop *l, const struct source_helper_config *config,
                               struct source_helper **out, struct error *err);
// An encoded WATCH frame. One that is still waiting unsent is replaced. 0, -ENOMEM (the one before
// stays).
int must_use source_helper_send_watch(struct source_helper *h, struct sv frame);

// An encoded CONTROL frame, sent once, behind what waits. 0; -EBUSY when SOURCE_CONTROLS of them
// wait; -ENOMEM.
#define SOURCE_CONTROLS 4
int must_use source_helper_send_control(struct source_helper *h, struct sv frame);

enum source_trouble {
    SOURCE_TROUBLE_NONE,
    SOURCE_TROUBLE_CALL,        // a vendor call has been running for call_ns
    SOURCE_TROUBLE_NO_HELLO,    // no HELLO within hello_ns, and not in a call
    SOURCE_TROUBLE_NOT_READING, // WATCH could not be written for call_ns
    SOURCE_TROUBLE_CLOSED,      // socket closed, process still there after closed_ns
};
struct source_deadlines {
    uint64_t call_ns, hello_ns, closed_ns;
    uint64_t watched_ns; // what was before counts for nothing: nobody watched
};
struct source_call {
    uint32_t index; // NVML index of the GPU, UINT32_MAX none
    char name[64];  // of the call, or ""
};
// *out_call: the call of SOURCE_TROUBLE_CALL, else none.
enum source_trouble source_helper_check(const struct source_helper *h, uint64_t now_ns,
                                        const struct source_deadlines *deadlines,
                                        struct source_call *out_call);
// Vendor calls, and turns of its loop, so far, by its own account.
uint32_t source_helper_calls(const struct source_helper *h);
uint32_t source_helper_turns(const struct source_helper *h);
// The call it is in, or was in when it died; false: none. Not once it was killed.
bool source_helper_call(const struct source_helper *h, struct source_call *out);
// Number of the last record of the kernel log that it has told, 0: none. Also once it was killed.
uint64_t source_helper_kmsg_seq(const struct source_helper *h);
// Somebody has stopped or traces it: it is not the driver that holds it up.
bool source_helper_is_stopped(const struct source_helper *h);
pid_t source_helper_pid(const struct source_helper *h);
// SIGKILL; no frame or broken comes any more, ended does.
void source_helper_kill(struct source_helper *h);
// Waits for the end of a killed process, at most wait_ms.
void source_helper_await(const struct source_helper *h, int wait_ms);
// Kills if need be and forgets: no event comes any more.
void source_helper_free(struct source_helper *h);
