// SPDX-License-Identifier: Apache-2.0
// A podgpu-source helper under supervision: started, fed with what to watch, watched over, killed past the call
// deadline, started again (the first time at once, then with backoff 1..60 s), skipping a GPU whose call hung.
#pragma once

#include "base/error.h"
#include "gpu/frame.h"
#include "io/loop.h"

struct source_process_config {
    const char *path; // of podgpu-source
    const char *source; // "nvml"
    const char *library; // --nvml-library, NULL or "": search
    const char *kmsg_path; // "/dev/kmsg"; "": none
    uint64_t call_deadline_ns; // 10 s
    // Frames as they come; borrowed during the call. HELLO is not passed on.
    void (*frame)(void *user, const struct frame *frame);
    // The helper went away. reason: "crashed", "hung", "protocol", "released", "exited"; index of the GPU in the call
    // that hung, else UINT32_MAX; call names it. skip_all: a fresh helper hung too (one driver lock): nothing is asked
    // any more until the backoff's next helper answers.
    void (*down)(void *user, const char *reason, uint32_t index, const char *call, bool driver_hung);
    void *user;
};

struct source_process_stats {
    uint64_t starts;
    uint64_t crashes;
    uint64_t hangs;
    uint64_t protocol_errors;
    uint64_t frames;
    uint32_t zombies; // killed but not yet gone (in an uninterruptible call)
    bool running;
    bool released;
    int pid; // 0 when not running
};

struct source_process;
int must_use source_process_new(struct loop *l, const struct source_process_config *config,
                                struct source_process **out, struct error *err);
// What to sample; sent at once and again to every new helper. Copied.
int must_use source_process_watch(struct source_process *s, const struct frame_watch *watch, const uint16_t *field_ids);
// release: ends the helper and starts none. 0, -EALREADY. attach: starts one. 0, -EALREADY.
int source_process_release(struct source_process *s);
int source_process_attach(struct source_process *s);
void source_process_get_stats(const struct source_process *s, struct source_process_stats *out);
void source_process_free(struct source_process *s); // kills without waiting
