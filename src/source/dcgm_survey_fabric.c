// SPDX-License-Identifier: Apache-2.0
// Switches, links and Grace CPUs. All links come in one answer whose struct has grown three times;
// all of its members are 32 bits wide, so it is read as an array by the numbers that differ.
#include <stdlib.h>
#include <string.h>

#include "source/dcgm_call.h"
#include "source/dcgm_survey.h"

// --- switches ---

static void add_switches(struct dcgm_survey *b, const unsigned *ids, int count)
{
    for (int i = 0; i < count; i++) {
        if (ids[i] == UINT32_MAX || dcgm_survey_find(b, DCGM_FE_SWITCH, ids[i]) != UINT32_MAX)
            continue;
        struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_SWITCH, ids[i]);
        if (!e)
            return;
        e->record.id = ids[i];
    }
}

// What becomes of a kind after the question about it.
enum outcome { OUTCOME_KEEP, OUTCOME_NONE, OUTCOME_TAKE };

static enum outcome outcome_of(dcgmReturn_t result)
{
    if (result == DCGM_ST_OK)
        return OUTCOME_TAKE;
    return dcgm_result_is_lack(result) ? OUTCOME_NONE : OUTCOME_KEEP;
}

static dcgmReturn_t list_switches(struct dcgm_survey *b)
{
    unsigned ids[DCGM_MAX_NUM_SWITCHES * 4] = {0}; // engines know 12
    int count = (int)ARRAY_SIZE(ids);
    dcgmReturn_t result =
        dcgm_call(b->d, dcgmGetEntityGroupEntities, b->d->engine, DCGM_FE_SWITCH, ids, &count, 0);
    if (dcgm_result_is_of_engine(result))
        return result;
    enum outcome outcome = outcome_of(result);
    if (outcome == OUTCOME_KEEP)
        dcgm_survey_keep(b, DCGM_FE_SWITCH);
    if (outcome != OUTCOME_TAKE || count <= 0)
        return DCGM_ST_OK;
    count = count > (int)ARRAY_SIZE(ids) ? (int)ARRAY_SIZE(ids) : count;
    qsort(ids, (size_t)count, sizeof(*ids), dcgm_compare_ids);
    add_switches(b, ids, count);
    return DCGM_ST_OK;
}

// --- links ---

struct link_layout {
    unsigned version;
    uint32_t gpu_links, switch_links; // of one
};

#define LAYOUT_BYTES(gpu_links, switch_links)                                                      \
    (4 * (2 + DCGM_MAX_NUM_DEVICES * (1 + (gpu_links)) + 1 +                                       \
          DCGM_MAX_NUM_SWITCHES * (1 + (switch_links))))
_Static_assert(sizeof(dcgmNvLinkStatus_v3) == LAYOUT_BYTES(18, 64), "all members are 32 bits wide");
_Static_assert(sizeof(dcgmNvLinkStatus_v4) == LAYOUT_BYTES(18, 256), "the same");
_Static_assert(sizeof(dcgmNvLinkStatus_v5) == LAYOUT_BYTES(36, 256), "the same");

static const struct link_layout layouts_4[] = {
    {dcgmNvLinkStatus_version5, 36, 256},
    {dcgmNvLinkStatus_version4, 18, 256},
};
static const struct link_layout layouts_3[] = {{dcgmNvLinkStatus_version3, 18, 64}};

// Links that are up of one owner: words are its id and the states.
static void add_owner(struct dcgm_survey *b, int group, const uint32_t *words, uint32_t links)
{
    uint32_t owner = dcgm_survey_find(b, group, words[0]);
    bool is_gpu = group == DCGM_FE_GPU;
    if (owner == UINT32_MAX || (is_gpu && words[0] < 64 && b->old->skipped >> words[0] & 1))
        return;
    for (uint32_t i = 0; i < links; i++) {
        if (words[1 + i] != DcgmNvLinkLinkStateUp)
            continue;
        uint32_t id = dcgm_link_pack(b->d->major, (uint32_t)group, i, words[0]);
        struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_LINK, id);
        if (!e)
            continue;
        e->record.parent = owner;
        e->record.id = i;
        e->record.index = b->list[owner].record.index;
        e->record.minor = b->list[owner].record.minor;
        e->record.state = b->list[owner].record.state;
        e->gpu_mask_bit = b->list[owner].gpu_mask_bit;
    }
}

// Rows in the order of the owners' list.
static void add_links(struct dcgm_survey *b, const uint32_t *words, const struct link_layout *l)
{
    const uint32_t *gpus = words + 2;
    const uint32_t *switches = gpus + DCGM_MAX_NUM_DEVICES * (1 + l->gpu_links) + 1;
    uint32_t gpu_count = words[1], switch_count = switches[-1];
    uint32_t owners = b->count;
    for (uint32_t at = 0; at < owners; at++) {
        const struct dcgm_entity *e = &b->list[at];
        int group = e->group;
        bool is_gpu = group == DCGM_FE_GPU;
        if (!is_gpu && group != DCGM_FE_SWITCH)
            continue;
        const uint32_t *row = is_gpu ? gpus : switches;
        uint32_t links = is_gpu ? l->gpu_links : l->switch_links, id = e->id;
        uint32_t rows = is_gpu ? gpu_count : switch_count;
        uint32_t most = is_gpu ? DCGM_MAX_NUM_DEVICES : DCGM_MAX_NUM_SWITCHES;
        for (uint32_t i = 0; i < rows && i < most; i++, row += 1 + links)
            if (row[0] == id) {
                add_owner(b, group, row, links);
                break;
            }
    }
}

static dcgmReturn_t ask_links(struct dcgm_survey *b, void *answer, const struct link_layout **used)
{
    const struct link_layout *layouts = b->d->major < 4 ? layouts_3 : layouts_4;
    size_t count = b->d->major < 4 ? ARRAY_SIZE(layouts_3) : ARRAY_SIZE(layouts_4);
    dcgmReturn_t result = DCGM_ST_VER_MISMATCH;
    for (size_t i = 0; i < count && result == DCGM_ST_VER_MISMATCH; i++) {
        memset(answer, 0, sizeof(dcgmNvLinkStatus_v5));
        memcpy(answer, &layouts[i].version, sizeof(layouts[i].version));
        result = dcgm_call(b->d, dcgmGetNvLinkLinkStatus, b->d->engine, answer);
        *used = &layouts[i];
    }
    return result;
}

static dcgmReturn_t list_links(struct dcgm_survey *b)
{
    if (!b->count)
        return DCGM_ST_OK;
    const struct link_layout *used = NULL;
    uint32_t *answer = malloc(sizeof(dcgmNvLinkStatus_v5));
    if (!answer) {
        b->no_memory = true;
        return DCGM_ST_MEMORY;
    }
    dcgmReturn_t result = ask_links(b, answer, &used);
    enum outcome outcome = outcome_of(result);
    if (outcome == OUTCOME_TAKE)
        add_links(b, answer, used);
    free(answer);
    if (dcgm_result_is_of_engine(result))
        return result;
    if (outcome == OUTCOME_KEEP)
        dcgm_survey_keep(b, DCGM_FE_LINK);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgm_survey_switches(struct dcgm_survey *b)
{
    dcgmReturn_t result = list_switches(b);
    return result == DCGM_ST_OK ? list_links(b) : result;
}

// --- CPUs ---

uint32_t dcgm_cores(const uint64_t *bitmask, uint32_t words, uint32_t *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        for (uint32_t bit = 0; bit < 64; bit++)
            if (bitmask[i] >> bit & 1)
                out[count++] = i * 64 + bit;
    return count;
}

struct cpu {
    uint32_t id;
    const uint64_t *bitmask;
};

static void add_cpus(struct dcgm_survey *b, const struct cpu *cpus, uint32_t count)
{
    uint32_t first = b->count;
    for (uint32_t i = 0; i < count; i++) {
        if (cpus[i].id == UINT32_MAX || dcgm_survey_find(b, DCGM_FE_CPU, cpus[i].id) != UINT32_MAX)
            continue;
        struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_CPU, cpus[i].id);
        if (e)
            e->record.id = cpus[i].id;
    }
    uint64_t seen[DCGM_MAX_NUM_CPU_CORES / 64] = {0}; // a core of two CPUs is the first one's
    for (uint32_t i = 0; i < count; i++) {
        uint32_t cores[DCGM_MAX_NUM_CPU_CORES];
        uint32_t parent = dcgm_survey_find(b, DCGM_FE_CPU, cpus[i].id);
        uint32_t found = dcgm_cores(cpus[i].bitmask, DCGM_MAX_NUM_CPU_CORES / 64, cores);
        for (uint32_t k = 0; parent != UINT32_MAX && parent >= first && k < found; k++) {
            if (seen[cores[k] / 64] >> cores[k] % 64 & 1)
                continue;
            seen[cores[k] / 64] |= UINT64_C(1) << cores[k] % 64;
            struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_CPU_CORE, cores[k]);
            if (!e)
                continue;
            e->record.id = cores[k];
            e->record.parent = parent;
        }
    }
}

static int compare_cpus(const void *a, const void *b)
{
    uint32_t left = ((const struct cpu *)a)->id, right = ((const struct cpu *)b)->id;
    return (left > right) - (left < right);
}

struct cpu_answers {
    dcgmCpuHierarchy_v2 second;
    dcgmCpuHierarchy_v1 first;
    struct cpu cpus[DCGM_MAX_NUM_CPUS];
    uint32_t count;
};

// The second form, of DCGM 4, else the first.
static dcgmReturn_t ask_cpus(struct dcgm_survey *b, struct cpu_answers *a)
{
    a->second.version = dcgmCpuHierarchy_version2;
    dcgmReturn_t result = dcgm_call(b->d, dcgmGetCpuHierarchy_v2, b->d->engine, &a->second);
    bool is_old = result == DCGM_ST_FUNCTION_NOT_FOUND || result == DCGM_ST_VER_MISMATCH;
    if (is_old) {
        a->first.version = dcgmCpuHierarchy_version1;
        result = dcgm_call(b->d, dcgmGetCpuHierarchy, b->d->engine, &a->first);
    }
    if (result != DCGM_ST_OK)
        return result;
    uint32_t count = is_old ? a->first.numCpus : a->second.numCpus;
    a->count = count < DCGM_MAX_NUM_CPUS ? count : DCGM_MAX_NUM_CPUS;
    for (uint32_t i = 0; i < a->count; i++)
        a->cpus[i] =
            is_old ? (struct cpu){a->first.cpus[i].cpuId, a->first.cpus[i].ownedCores.bitmask}
                   : (struct cpu){a->second.cpus[i].cpuId, a->second.cpus[i].ownedCores.bitmask};
    qsort(a->cpus, a->count, sizeof(*a->cpus), compare_cpus);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgm_survey_cpus(struct dcgm_survey *b)
{
    struct cpu_answers answers = {.count = 0};
    dcgmReturn_t result = ask_cpus(b, &answers);
    if (dcgm_result_is_of_engine(result))
        return result;
    enum outcome outcome = outcome_of(result);
    if (outcome == OUTCOME_TAKE)
        add_cpus(b, answers.cpus, answers.count);
    if (outcome == OUTCOME_KEEP) {
        dcgm_survey_keep(b, DCGM_FE_CPU);
        dcgm_survey_keep(b, DCGM_FE_CPU_CORE);
    }
    return DCGM_ST_OK;
}
