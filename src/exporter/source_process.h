// SPDX-License-Identifier: Apache-2.0
// A podgpu-source helper under supervision: started, fed with what to watch, watched over, killed
// past the call deadline, started again (the first time at once, then with backoff 1..60 s),
// skipping a GPU whose call hung. The policy in full stands at the top of source_process.c.
#pragma once

#include "base/error.h"
#include "gpu/frame.h"
#include "io/loop.h"

// Times that only tests change; 0 takes the default.
struct source_process_timing {
    uint64_t
        watchdog_ns;   // a tenth of the call deadline, at most 1 s: how often the call page is read
    uint64_t hello_ns; // 10 s: for a new helper to say HELLO
    uint64_t backoff_least_ns; // 1 s
    uint64_t backoff_most_ns;  // 60 s
    uint64_t healthy_ns;       // 60 s: a helper that lived so long starts the backoff anew
    uint64_t probe_ns;    // 5 min: first retry of a skipped GPU; doubles up to twelve times this
    uint64_t patience_ns; // 1 s: for a helper that closed its socket to end, or a killed one to go
    uint64_t pulse_ns;    // 30 s: for the helper's loop to turn once
};

struct source_process_config {
    const char *path;          // of podgpu-source
    const char *source;        // "nvml" or "dcgm"
    const char *library;       // --nvml-library, --dcgm-library; NULL or "": search
    const char *kmsg_path;     // "/dev/kmsg"; "": none
    const char *const *extra;  // further words of its command line, ended by NULL; NULL: none
    bool log_json, log_debug;  // how the helper logs to our stderr
    uint64_t call_deadline_ns; // 10 s
    // Frames as they come; borrowed during the call. HELLO is not passed on.
    void (*frame)(void *user, const struct frame *frame);
    // The helper went away. reason: "crashed", "hung", "protocol", "released", "exited"; index of
    // the GPU in the call that hung or crashed, else UINT32_MAX; call names it ("" when in none).
    // driver_hung: a fresh helper hung too (one driver lock), or killed helpers that do not die
    // leave no room for another: nothing is asked any more until the next helper answers. All
    // arguments are valid during the call. From here and from frame, every function below may be
    // called, source_process_free too.
    void (*down)(void *user, const char *reason, uint32_t index, const char *call,
                 bool driver_hung);
    void *user;
    struct source_process_timing timing;
};

struct source_process_stats {
    uint64_t starts;
    uint64_t crashes; // ended by themselves
    uint64_t hangs;
    uint64_t protocol_errors;
    uint64_t frames;
    uint32_t zombies; // killed but not yet gone (in an uninterruptible call)
    bool running;
    bool released;
    int pid;          // 0 when not running
    uint64_t probes;  // helpers started to see whether a skipped GPU answers again
    uint32_t skipped; // GPUs left alone now
    uint32_t avoided; // vendor calls left alone now, see source_blame.h
};

struct source_process;
// Strings of config are copied. 0; negative errno with *err when the first helper can't be started.
int must_use source_process_new(struct loop *l, const struct source_process_config *config,
                                struct source_process **out, struct error *err);
// What to sample; sent at once and again to every new helper. Copied. 0, -ENOMEM.
int must_use source_process_watch(struct source_process *s, const struct frame_watch *watch,
                                  const uint16_t *field_ids);
// Something to do once, told to the running helper; its answer comes as a CONTROL_DONE frame with
// this number, or never. 0; -ENOTCONN when none runs; -EBUSY when it does not take what it was told
// before; -ENOMEM.
int must_use source_process_control(struct source_process *s, enum frame_command command,
                                    uint32_t number);
// release: ends the helper and starts none. Returns when it is gone, but waits 100 ms a process at
// most (then stats.zombies tells). 0, -EALREADY. attach: starts one; GPUs skipped before are asked
// again. 0, -EALREADY.
int source_process_release(struct source_process *s);
int source_process_attach(struct source_process *s);
void source_process_get_stats(const struct source_process *s, struct source_process_stats *out);
void source_process_free(struct source_process *s); // kills without waiting
