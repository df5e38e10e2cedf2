// SPDX-License-Identifier: Apache-2.0
// The library of the simulated node as tools and Python use it (libsimnode.so): a mapped node and
// its verbs.
#pragma once

#include "node_edit.h"

#define SIM_API __attribute__((visibility("default")))

struct sim_session;

// NULL with errno when the file isn't a node.
SIM_API struct sim_session *sim_session_open(const char *path);
SIM_API void sim_session_close(struct sim_session *s);
// Runs one line as a verb that holds from now on (or from at_ns, if not negative). Returns 0 or
// negative errno; the answer, or the reason of a failure, goes to out, cut to out_bytes and
// terminated; *out_needed (may be NULL) gets its whole length.
SIM_API int sim_session_run(struct sim_session *s, const char *line, int64_t at_ns, char *out,
                            size_t out_bytes, size_t *out_needed);
// Compiles a scenario file into a new node file that starts now. rate: scenario seconds per second.
SIM_API int sim_session_create(const char *scenario, const char *path, double rate,
                               struct error *err);

// For Python: names, numbers and rows by index.
SIM_API int sim_field_index(const char *name); // -1
SIM_API const char *sim_field_name(int index); // NULL past the end
SIM_API int64_t sim_now_ns(struct sim_session *s);
SIM_API int sim_get_truth(struct sim_session *s, uint32_t gpu, int field, int64_t t, int64_t *out);
SIM_API int sim_get_truth_double(struct sim_session *s, uint32_t gpu, int field, int64_t t,
                                 double *out);
SIM_API double sim_get_mean(struct sim_session *s, uint32_t gpu, uint32_t gi, int field,
                            int64_t from, int64_t to);
SIM_API double sim_get_load(struct sim_session *s, uint32_t gpu, uint32_t gi, int64_t t);
SIM_API int64_t sim_get_busy_us(struct sim_session *s, uint32_t gpu, uint32_t gi, int64_t from,
                                int64_t to);
SIM_API int64_t sim_get_process_busy_us(struct sim_session *s, uint32_t pid, int64_t from,
                                        int64_t to);
SIM_API int sim_get_memory(struct sim_session *s, uint32_t gpu, uint32_t instance, int64_t t,
                           int64_t out[4]);
SIM_API uint32_t sim_gpu_count(struct sim_session *s);
SIM_API const char *sim_gpu_text(struct sim_session *s, uint32_t gpu,
                                 const char *what); // uuid, name, bus_id, serial, resource
SIM_API uint64_t sim_get_calls(struct sim_session *s, const char *symbol);
SIM_API void sim_count_call(struct sim_session *s, const char *symbol, uint64_t took_ns);
// Events in the order they were written; 0, or -1 past the end.
SIM_API int sim_get_event(struct sim_session *s, uint32_t index, struct sim_event *out);
// Instances: 0, or -1 past the end.
SIM_API int sim_get_instance(struct sim_session *s, uint32_t index, struct sim_instance *out);
SIM_API int sim_get_process(struct sim_session *s, uint32_t index, struct sim_process *out);
SIM_API const char *sim_get_string(struct sim_session *s, uint32_t at);
SIM_API const char *sim_driver_version(struct sim_session *s);
SIM_API const char *sim_node_name(struct sim_session *s);
SIM_API const char *sim_cgroups(struct sim_session *s);     // the shape of the pods' cgroups
SIM_API const char *sim_node_extra(struct sim_session *s);  // JSON: claims and slices
SIM_API uint32_t sim_generation(struct sim_session *s);     // grows with each edit
SIM_API int64_t sim_wall(struct sim_session *s, int64_t t); // microseconds since 1970 of t
SIM_API uint32_t sim_gpu_number(struct sim_session *s, uint32_t gpu,
                                const char *what); // minor, replicas
SIM_API int sim_uses_old_library(struct sim_session *s);
SIM_API uint32_t sim_dcgm_library(struct sim_session *s); // major, 0: none
SIM_API int sim_dcgm_engine_runs(struct sim_session *s);
