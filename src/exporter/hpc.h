// SPDX-License-Identifier: Apache-2.0
// HPC job mapping: a directory whose files name the jobs on each GPU ("0", "1") or GPU instance
// ("3.0" = GPU 3, instance 0), one job id a line, as dcgm-exporter reads it. hpc.c is the engine,
// hpc_directory.c reads.
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"

// --- Engine: names and bytes in, jobs out ---
#define HPC_NO_INSTANCE UINT32_MAX

struct hpc_jobs;
// The job names of a GPU (gpu_instance_id UINT32_MAX) or instance; NULL and 0 when it has none.
// Borrowed. jobs may be NULL.
const char *const *hpc_jobs_find(const struct hpc_jobs *jobs, uint32_t gpu,
                                 uint32_t gpu_instance_id, size_t *out_count);

// "<gpu>" or "<gpu>.<instance>" in decimal without leading zeros. False: a file of no interest.
bool must_use hpc_parse_name(struct sv name, uint32_t *out_gpu, uint32_t *out_gpu_instance_id);

int must_use hpc_jobs_new(struct hpc_jobs **out); // none yet; 0, -ENOMEM
// The content of one file: a job a line, LF or CRLF, the last one may lack it. An empty line is a
// job without a name (dcgm-exporter has it so). A name that stands there twice counts once; NUL
// becomes '?'. Lines over LIMIT_HPC_LINE_BYTES and jobs beyond LIMIT_HPC_JOBS are left out and
// counted. 0, -ENOMEM, -EEXIST (that GPU or instance has its jobs already).
int must_use hpc_jobs_add(struct hpc_jobs *jobs, uint32_t gpu, uint32_t gpu_instance_id,
                          struct sv content);
size_t hpc_jobs_left_out(const struct hpc_jobs *jobs);
bool hpc_jobs_equal(const struct hpc_jobs *a, const struct hpc_jobs *b);
void hpc_jobs_free(struct hpc_jobs *jobs);

// --- The directory, read again only when something in it changed ---
struct hpc;
int must_use hpc_new(const char *directory, struct hpc **out); // 0, -ENOMEM
// To be called every second or so; costs a look at each file. A file that can't be read has no
// jobs, is logged, and does not stand in the way of the others; a missing directory is logged once.
// True: hpc_current is another object now (the one before is gone).
bool hpc_refresh(struct hpc *h, uint64_t now_wall_ns);
const struct hpc_jobs *hpc_current(const struct hpc *h); // NULL: no directory
void hpc_free(struct hpc *h);
