// SPDX-License-Identifier: Apache-2.0
// What the engine samples for us: groups of entities and groups of fields, one pair per entity
// kind, cost class and 128 fields (the most that DCGM takes), each field at the kinds that its
// level allows: GPUs take GPU, VGPU, GPU_I and GPU_CI, GPU instances the last two, compute
// instances the last; switches SWITCH and LINK, links LINK, CPUs CPU and CPU_CORE, cores CPU_CORE;
// all take what is global. A read is one bulk call per pair that is due, whatever the number of
// fields; values are looked at where the library has them, never copied.
#pragma once

#include "base/buf.h"
#include "gpu/catalogue.h"
#include "source/dcgm_devices.h"

struct dcgm_watch; // owned by the loop
int must_use dcgm_watch_new(struct dcgm *d, struct dcgm_devices *v, struct dcgm_watch **out);
void dcgm_watch_free(struct dcgm_watch *w); // unwatches what the engine still has
// What is wanted; copied. Takes effect with the next apply.
int must_use dcgm_watch_set(struct dcgm_watch *w, const struct frame_watch *watch,
                            const uint16_t *field_ids);
// Makes the engine watch it: after a new set, a new list of devices, or a new engine (forget
// first). What was watched before and is not any more is unwatched and destroyed. Fields that the
// engine or library does not know, or whose profiling is not to be had, get their status. 0, or
// what the engine as a whole said.
dcgmReturn_t dcgm_watch_apply(struct dcgm_watch *w);
// The engine is gone and with it all that was made there.
void dcgm_watch_forget(struct dcgm_watch *w);

uint64_t dcgm_watch_due_ns(const struct dcgm_watch *w); // UINT64_MAX: nothing is watched
// Reads the classes that are due and makes the SAMPLE frame: OK values each time, other statuses
// when they change or after a resend. *frame borrowed until the next call, NULL when none was due.
// A call that fails gives nothing of its pair; its result is returned when no call was answered, or
// when the engine as a whole is gone. DCGM_ST_NOT_WATCHED: all is answered, but nothing of what was
// made is known there, since the engine was started anew behind the connection; forget and apply.
dcgmReturn_t dcgm_watch_read(struct dcgm_watch *w, uint64_t now_ns, const struct buf **frame);
// The list was sent again: statuses are to be sent again.
void dcgm_watch_resend(struct dcgm_watch *w);
// 0, or the dcgmReturn_t that keeps profiling fields away on some GPU (STATE's profiling_code).
dcgmReturn_t dcgm_watch_profiling_code(const struct dcgm_watch *w);
void dcgm_watch_set_paused(struct dcgm_watch *w, bool paused);     // profiling fields: FRAME_PAUSED
bool dcgm_watch_wants(const struct dcgm_watch *w, uint16_t field); // in the last set
