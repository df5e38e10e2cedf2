// SPDX-License-Identifier: Apache-2.0
// The first line is a file's name, the rest its content.
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/hpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_names(const struct hpc_jobs *jobs, uint32_t gpu, uint32_t instance,
                        struct sv content)
{
    size_t count;
    const char *const *names = hpc_jobs_find(jobs, gpu, instance, &count);
    if ((names == NULL) != (count == 0) || count > LIMIT_HPC_JOBS)
        abort();
    if (content.len == 0 && count > 0)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) > LIMIT_HPC_LINE_BYTES || strchr(names[i], '\n'))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv content = {(const char *)data, size};
    struct sv name;
    struct hpc_jobs *jobs;
    uint32_t gpu = 0, instance = 0;
    if (!sv_next(&content, '\n', &name))
        return 0;
    (void)!hpc_parse_name(name, &gpu, &instance);
    if (hpc_jobs_new(&jobs) < 0 || hpc_jobs_add(jobs, gpu, instance, content) < 0)
        abort();
    if (hpc_jobs_add(jobs, gpu, instance, content) == 0)
        abort();
    check_names(jobs, gpu, instance, content);
    hpc_jobs_free(jobs);
    return 0;
}
