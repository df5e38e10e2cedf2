// SPDX-License-Identifier: Apache-2.0
// Verdicts of DCGM's health watches and the state of peer-to-peer links, each asked when its field
// stands in the watch (DCGM_EXP_GPU_HEALTH_STATUS each medium period, DCGM_EXP_P2P_STATUS each slow
// one), and the XIDs that the engine saw (field 230 since the last look, each second), told once.
#pragma once

#include "base/buf.h"
#include "source/dcgm_devices.h"

struct dcgm_health;
int must_use dcgm_health_new(struct dcgm *d, struct dcgm_devices *v, struct dcgm_health **out);
void dcgm_health_free(struct dcgm_health *h);
// After a new engine (forget first), a new list or another wish. gpus, as in frame_watch, are those
// of the verdicts; XIDs are of all. 0, or what the engine said.
dcgmReturn_t dcgm_health_apply(struct dcgm_health *h, bool verdicts, bool peers, uint64_t gpus,
                               const uint64_t *period_ns);
// The engine is gone and with it all that was made there. Which XIDs were told stays known.
void dcgm_health_forget(struct dcgm_health *h);
uint64_t dcgm_health_due_ns(const struct dcgm_health *h); // UINT64_MAX: nothing
// Asks what is due and appends whole HEALTH, PEERS and EVENTS frames to out. What an engine does
// not tell is asked again when it is due; a result is what it said of itself, or DCGM_ST_MEMORY.
dcgmReturn_t dcgm_health_read(struct dcgm_health *h, uint64_t now_ns, struct buf *out);
bool dcgm_health_listens(const struct dcgm_health *h); // XIDs would be told
