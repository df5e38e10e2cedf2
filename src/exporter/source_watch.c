// SPDX-License-Identifier: Apache-2.0
// The watchdog: when a helper is held to hang; see source_process.c.
#include "base/clock.h"
#include "exporter/source_process_internal.h"

uint64_t source_watched_since(const struct source_process *s, uint64_t then_ns, uint64_t now_ns)
{
    uint64_t from_ns = then_ns > s->watched_ns ? then_ns : s->watched_ns;
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static bool is_silent(struct source_process *s, struct slot *slot, uint64_t now_ns)
{
    uint32_t calls = source_helper_calls(slot->helper), turns = source_helper_turns(slot->helper);
    struct source_call call;
    if (calls != slot->calls)
        slot->progress_ns = slot->beat_ns = now_ns;
    if (turns != slot->turns || source_helper_call(slot->helper, &call))
        slot->beat_ns = now_ns; // a call has its own deadline
    slot->calls = calls;
    slot->turns = turns;
    bool has_work = slot->ready && slot->entities > 0 && s->silence_ns > 0;
    return (has_work && source_watched_since(s, slot->progress_ns, now_ns) > s->silence_ns) ||
           source_watched_since(s, slot->beat_ns, now_ns) > s->config.timing.pulse_ns;
}

void source_check(struct source_process *s, struct slot *slot, uint64_t now_ns)
{
    const struct source_deadlines deadlines = {
        .call_ns = s->config.call_deadline_ns,
        .hello_ns = s->config.timing.hello_ns,
        .closed_ns = s->config.timing.patience_ns,
        .watched_ns = s->watched_ns,
    };
    struct source_call call;
    switch (source_helper_check(slot->helper, now_ns, &deadlines, &call)) {
    case SOURCE_TROUBLE_NONE:
        if (is_silent(s, slot, now_ns))
            source_hang(s, slot, &call);
        return;
    case SOURCE_TROUBLE_CLOSED:
        source_broken(s, slot, "socket closed by a running source");
        return;
    case SOURCE_TROUBLE_CALL:
    case SOURCE_TROUBLE_NO_HELLO:
    case SOURCE_TROUBLE_NOT_READING:
        source_hang(s, slot, &call);
        return;
    }
}

// A tick that comes far too late: it is we who did not run, and the helpers may not have either.
static void note_gap(struct source_process *s, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - s->looked_ns;
    if (gap_ns > 4 * s->config.timing.watchdog_ns && gap_ns > s->config.call_deadline_ns / 4)
        s->watched_ns = now_ns;
    s->looked_ns = now_ns;
}

void source_on_watchdog(void *user)
{
    struct source_process *s = user;
    uint64_t now_ns = clock_mono_ns();
    note_gap(s, now_ns);
    s->depth++;
    source_probe_check(s, now_ns);
    if (s->active && !s->freed)
        source_check(s, s->active, now_ns);
    if (!s->freed)
        source_probe_start(s, now_ns);
    bool no_room = s->no_room_ns && now_ns > s->no_room_ns + s->config.timing.patience_ns;
    if (no_room && !s->no_room_told && !s->freed) {
        s->no_room_told = true;
        (void)source_tell_down(s, "hung", NULL, true);
    }
    (void)source_leave(s);
}
