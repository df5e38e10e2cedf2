// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_blame.h"

#include <stdio.h>
#include <string.h>

#include "base/sv.h"

static bool is_one_of(const char *call, const char *const *calls)
{
    while (*calls && strcmp(call, *calls) != 0)
        calls++;
    return *calls != NULL;
}

// Without these there is no driver to speak of, or not this GPU. Of DCGM most are: an engine is
// connected to, listed and read by a few calls for all.
static bool is_essential(const char *call)
{
    static const char *const nvml[] = {
        "nvmlInit",
        "nvmlInitWithFlags",
        "nvmlShutdown",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetUUID",
        NULL,
    };
    static const char *const dcgm_extras[] = {
        "dcgmGetNvLinkLinkStatus",
        "dcgmGetNvLinkP2PStatus",
        "dcgmGetCpuHierarchy",
        "dcgmGetCpuHierarchy_v2",
        "dcgmGetGpuInstanceHierarchy",
        "dcgmGetGpuStatus",
        "dcgmHealthSet_v2",
        "dcgmHealthCheck",
        "dcgmProfGetSupportedMetricGroups",
        "dcgmProfPause",
        "dcgmProfResume",
        NULL,
    };
    struct sv name = sv_from(call);
    if (sv_starts_with(name, SV("dcgm")) || sv_starts_with(name, SV("Dcgm")))
        return !is_one_of(call, dcgm_extras);
    return is_one_of(call, nvml);
}

static void remove_row(struct source_blame *b, uint32_t at)
{
    b->count--;
    memmove(&b->rows[at], &b->rows[at + 1], (b->count - at) * sizeof(b->rows[0]));
}

void source_blame_expire(struct source_blame *b, uint64_t now_ns)
{
    for (uint32_t i = b->count; i-- > 0;)
        if (now_ns >= b->rows[i].at_ns + SOURCE_BLAME_NS)
            remove_row(b, i);
}

static struct source_blame_row *get_row(struct source_blame *b, const char *call, uint32_t index)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->rows[i].index == index && strcmp(b->rows[i].call, call) == 0)
            return &b->rows[i];
    if (b->count == SOURCE_BLAME_MAX)
        remove_row(b, 0);
    struct source_blame_row *row = &b->rows[b->count++];
    *row = (struct source_blame_row){.index = index};
    sv_copy(row->call, sizeof(row->call), sv_from(call));
    return row;
}

// Whether the call is avoided on another GPU already, or another call on this one.
static bool is_avoided_beside(const struct source_blame *b, const struct source_blame_row *row,
                              bool same_call)
{
    for (uint32_t i = 0; i < b->count; i++) {
        const struct source_blame_row *other = &b->rows[i];
        bool fits = (strcmp(other->call, row->call) == 0) == same_call;
        if (other != row && other->avoided && fits && (same_call || other->index == row->index))
            return true;
    }
    return false;
}

enum source_verdict source_blame_note(struct source_blame *b, const char *call, uint32_t index,
                                      uint64_t now_ns)
{
    source_blame_expire(b, now_ns);
    struct source_blame_row *row = get_row(b, call, index);
    row->at_ns = now_ns;
    row->times++;
    if (row->times < 2)
        return SOURCE_VERDICT_NONE;
    bool whole_gpu = index != UINT32_MAX &&
                     (is_essential(call) || row->avoided || is_avoided_beside(b, row, false));
    if (whole_gpu)
        return SOURCE_VERDICT_SKIP_GPU;
    if (is_essential(call) || row->avoided)
        return SOURCE_VERDICT_NONE;
    if (is_avoided_beside(b, row, true))
        row->index = UINT32_MAX;
    row->avoided = true;
    return SOURCE_VERDICT_AVOID;
}

bool source_blame_text(const struct source_blame *b, uint32_t i, char out[SOURCE_BLAME_TEXT])
{
    for (uint32_t k = 0; k < b->count; k++) {
        const struct source_blame_row *row = &b->rows[k];
        if (!row->avoided || i-- > 0)
            continue;
        if (row->index == UINT32_MAX)
            (void)snprintf(out, SOURCE_BLAME_TEXT, "%s", row->call);
        else
            (void)snprintf(out, SOURCE_BLAME_TEXT, "%s@%u", row->call, row->index);
        return true;
    }
    return false;
}

uint32_t source_blame_avoided(const struct source_blame *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->count; i++)
        n += b->rows[i].avoided;
    return n;
}
