// SPDX-License-Identifier: Apache-2.0
// HPC job mapping: a directory whose files name the jobs on each GPU ("0", "1") or GPU instance ("3.0" = GPU 3,
// instance 0), one job id a line, as dcgm-exporter reads it.
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"

struct hpc_jobs;
// The job names of a GPU (gpu_instance_id UINT32_MAX) or instance; NULL and 0 when it has none. Borrowed.
const char *const *hpc_jobs_find(const struct hpc_jobs *jobs, uint32_t gpu, uint32_t gpu_instance_id,
                                 size_t *out_count);

// The directory, read again only when something in it changed.
struct hpc;
int must_use hpc_new(const char *directory, struct hpc **out); // -ENOMEM; a missing directory is logged once
bool hpc_refresh(struct hpc *h); // true: hpc_current is another object now (the one before is gone)
const struct hpc_jobs *hpc_current(const struct hpc *h); // NULL: no directory
void hpc_free(struct hpc *h);
