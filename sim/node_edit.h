// SPDX-License-Identifier: Apache-2.0
// Changing a node: what a scenario's compiler and the verbs on a live node share. Every change has
// a time from which it holds; the past stays as it was.
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/sv.h"
#include "node.h"

// --- Values as scenarios and verbs write them ---

// "65", "60000 + 239437*load", "1000 + 5/s + 20*load/s" (counters), "power" (energy: the integral
// of power_mw), "error 3" (that nvmlReturn_t), "unsupported". Numbers may end in KiB, MiB or GiB.
// -EINVAL with *err.
int must_use sim_parse_signal(struct sv text, enum sim_kind kind, struct sim_segment *out,
                              struct error *err);
// "0.5", "square:on=20s,off=20s[,phase=5s][,high=1][,low=0]",
// "bursts:every=1s,width=50ms,pulses=3[,phase=][,high=][,low=]".
int must_use sim_parse_load(struct sv text, struct sim_load *out, struct error *err);
int must_use sim_parse_time(struct sv text, int64_t *out_ns,
                            struct error *err); // "90s", "1h30m", "250ms", "0"
// "gpu3" -> 3. SIM_NONE when it isn't one of the node's.
uint32_t sim_parse_gpu(const struct sim_node *n, struct sv text);
// "power_mw" of a GPU, "kubelet.down" of the node; SIM_FIELD_COUNT when unknown.
enum sim_field sim_parse_field(struct sv name);
// "gpu0" -> its UUID, "gpu0::2" -> UUID::2, "gpu0/gi1" or "gpu0/gi1/ci0" -> the MIG UUID of that
// instance at `at`; anything else as it is.
int must_use sim_resolve_device(struct sim_node *n, struct sv text, int64_t at,
                                uint32_t *out_string, struct error *err);

// "gpu0" or "gpu0/gi1[/ci0]" -> indices; *out_instance is SIM_NONE for a whole GPU. -EINVAL.
int must_use sim_find_instance(const struct sim_node *n, struct sv text, int64_t at,
                               uint32_t *out_gpu, uint32_t *out_instance, struct error *err);

// --- Edits ---
int must_use sim_add_string(struct sim_node *n, struct sv text, uint32_t *out, struct error *err);
// The signal or the load from s->from_ns on.
int must_use sim_add_segment(struct sim_node *n, uint32_t gpu, enum sim_field field,
                             const struct sim_segment *s, struct error *err);
int must_use sim_add_load(struct sim_node *n, _Atomic uint32_t *list, const struct sim_load *l,
                          struct error *err);
int must_use sim_add_process(struct sim_node *n, const struct sim_process *p, uint32_t *out,
                             struct error *err);
// What a pod and a container are called when nobody says so: a UID, 64 hex digits, both the same in
// every run.
int must_use sim_default_uid(struct sim_node *n, uint32_t pod, uint32_t *out, struct error *err);
int must_use sim_default_config_hash(struct sim_node *n, uint32_t pod, uint32_t *out,
                                     struct error *err);
int must_use sim_default_container_id(struct sim_node *n, uint32_t pod, uint32_t container,
                                      uint32_t *out, struct error *err);
int must_use sim_add_event(struct sim_node *n, const struct sim_event *e, struct error *err);
// "3g.40gb,2g.20gb:1c+1c": GPU instances with one or more compute instances each. Ends the
// instances of before and their processes.
int must_use sim_add_layout(struct sim_node *n, uint32_t gpu, struct sv layout, int64_t at,
                            struct error *err);

// --- What only DCGM tells (edit_dcgm.c) ---

// "gpu0", "gpu0/gi1[/ci0]", "gpu0/link3", "switch0[/link2]", "cpu0", "cpu0/core3" -> what its
// values are kept by. -EINVAL.
int must_use sim_parse_entity(struct sv text, uint32_t *out_entity, uint32_t *out_key,
                              struct error *err);
// A number, a text, "blank", "not_found", "not_supported", "no_permission", "nan", "auto" (what the
// truth says), "status -14". Sets shape and value of *out only.
int must_use sim_parse_dcgm_value(struct sim_node *n, struct sv text, struct sim_dcgm_value *out,
                                  struct error *err);
int must_use sim_add_dcgm_value(struct sim_node *n, const struct sim_dcgm_value *v,
                                struct error *err);
int must_use sim_parse_link_state(struct sv text, uint32_t *out, struct error *err);
struct sim_link *sim_find_link(struct sim_node *n, uint32_t key); // NULL: none
int must_use sim_parse_health_system(struct sv text, uint32_t *out, struct error *err);
int must_use sim_add_incident(struct sim_node *n, const struct sim_incident *i, struct error *err);

// One verb, from time `at`. argv[0] is the verb (see sim/README.md). Its answer goes to out. 0;
// -EINVAL, -ENOSPC, -EBUSY (reset of a GPU in use) with *err.
int must_use sim_command(struct sim_node *n, int64_t at, size_t argc, const struct sv *argv,
                         struct buf *out, struct error *err);
// The same from one line, words parted by blanks.
int must_use sim_command_line(struct sim_node *n, int64_t at, struct sv line, struct buf *out,
                              struct error *err);

// Pods that are there at t, or all there ever are: {"pods": [{"index", "first_container", "name",
// "namespace", "uid", "config_hash", "phase", "extra", "containers": [{"name", "id", "init": 0..2,
// "extra", "devices": [{"resource", "id", "numa": [0]}]}]}]}; extra: an object of texts, as the
// scenario has them.
void sim_pods_json(const struct sim_node *n, int64_t t, bool all, struct buf *out);

// A scenario's text into a zeroed node. -EINVAL with position and reason.
int must_use sim_compile(struct sim_node *n, struct sv text, const char *file, struct error *err);
