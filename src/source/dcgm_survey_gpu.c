// SPDX-License-Identifier: Apache-2.0
// A GPU's state is asked at each walk: dcgmGetGpuStatus is a look into the engine's memory, where a
// library has it (DCGM 4); before, the answer to the attributes tells. Those, 25 driver calls on
// the engine's side, are else asked only when there is reason to.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "source/dcgm_call.h"
#include "source/dcgm_survey.h"

#define MIG_ON 1u

static bool is_hex(struct sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isxdigit((unsigned char)text.ptr[i]))
            return false;
    return text.len > 0;
}

void dcgm_bus_id(char out[32], struct sv text)
{
    size_t colon = sv_find_char(text, ':');
    struct sv domain = sv_sub(text, 0, colon == (size_t)-1 ? 0 : colon);
    while (domain.len > 8 && domain.ptr[0] == '0')
        domain = sv_sub(domain, 1, domain.len);
    sv_copy(out, 32, text);
    if (is_hex(domain) && domain.len <= 8 && text.len - colon < 32 - 8) {
        size_t zeros = 8 - domain.len;
        memset(out, '0', zeros);
        sv_copy(out + zeros, 32 - zeros, domain);
        sv_copy(out + 8, 32 - 8, sv_sub(text, colon, text.len));
    }
    for (char *c = out; *c; c++)
        *c = (char)toupper((unsigned char)*c);
}

#define ANSWER_TEXT(array) dcgm_text((array), sizeof(array))

static enum frame_entity_state state_of_status(int status)
{
    switch (status) {
    case DcgmEntityStatusLost:
        return FRAME_ENTITY_LOST;
    case DcgmEntityStatusInaccessible: // by cgroups
        return FRAME_ENTITY_NO_PERMISSION;
    case DcgmEntityStatusDisabled: // the engine was told to leave it alone
    case DcgmEntityStatusDetached: // taken away on purpose, while the driver is changed
        return FRAME_ENTITY_SKIPPED;
    default: // unsupported, fake: the engine answers, and its fields have a status each
        return FRAME_ENTITY_UP;
    }
}

static enum frame_entity_state state_of_result(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_OK:
        return FRAME_ENTITY_UP;
    case DCGM_ST_GPU_IS_LOST:
        return FRAME_ENTITY_LOST;
    case DCGM_ST_RESET_REQUIRED:
        return FRAME_ENTITY_RESET_REQUIRED;
    case DCGM_ST_NO_PERMISSION:
    case DCGM_ST_REQUIRES_ROOT:
        return FRAME_ENTITY_NO_PERMISSION;
    default:
        return FRAME_ENTITY_FAILED;
    }
}

static void take_attributes(struct dcgm_survey *b, struct frame_entity *record,
                            const dcgmDeviceAttributes_v3 *a)
{
    const dcgmDeviceIdentifiers_v1 *ids = &a->identifiers;
    struct sv uuid = ANSWER_TEXT(ids->uuid), name = ANSWER_TEXT(ids->deviceName);
    struct sv bus_id = ANSWER_TEXT(ids->pciBusId), driver = ANSWER_TEXT(ids->driverVersion);
    // Of a lost GPU an engine may know less than it told before. What is behind the end of a text
    // is zero: lists are compared by their bytes.
    if (uuid.len) {
        memset(record->uuid, 0, sizeof(record->uuid));
        sv_copy(record->uuid, sizeof(record->uuid), uuid);
    }
    if (name.len) {
        memset(record->name, 0, sizeof(record->name));
        sv_copy(record->name, sizeof(record->name), name);
    }
    if (bus_id.len) {
        memset(record->bus_id, 0, sizeof(record->bus_id));
        dcgm_bus_id(record->bus_id, bus_id);
    }
    if (driver.len)
        sv_copy(b->driver_version, sizeof(b->driver_version), driver);
    record->mig_enabled = a->settings.migModeEnabled == MIG_ON;
}

static dcgmReturn_t ask_attributes(struct dcgm_survey *b, struct dcgm_entity *e)
{
    dcgmDeviceAttributes_v3 attributes = {.version = dcgmDeviceAttributes_version3};
    dcgmReturn_t result =
        dcgm_call_gpu(b->d, e->id, dcgmGetDeviceAttributes, b->d->engine, e->id, &attributes);
    if (result == DCGM_ST_OK)
        take_attributes(b, &e->record, &attributes);
    return result;
}

// State and identity, the latter from before where there is no reason to ask.
static dcgmReturn_t look_at(struct dcgm_survey *b, struct dcgm_entity *e,
                            const struct dcgm_entity *known)
{
    int status = DcgmEntityStatusUnknown;
    dcgmReturn_t result =
        dcgm_call_gpu(b->d, e->id, dcgmGetGpuStatus, b->d->engine, e->id, &status);
    if (dcgm_result_is_of_engine(result))
        return result;
    bool told = result == DCGM_ST_OK && status != DcgmEntityStatusUnknown;
    enum frame_entity_state state = told ? state_of_status(status) : FRAME_ENTITY_UP;
    e->status = told ? (uint8_t)status : DcgmEntityStatusUnknown;
    bool known_well = known && known->record.uuid[0] && known->record.state == FRAME_ENTITY_UP &&
                      known->status == e->status;
    if (!told || b->all || !known_well) {
        result = ask_attributes(b, e);
        if (dcgm_result_is_of_engine(result))
            return result;
        // Where its status is well, a GPU that was known only failed to answer in time.
        bool excused = told && known && known->record.uuid[0] &&
                       state_of_result(result) == FRAME_ENTITY_FAILED;
        if (state == FRAME_ENTITY_UP && !excused)
            state = state_of_result(result);
    }
    e->record.state = (uint8_t)state;
    return DCGM_ST_OK;
}

static void copy_identity(struct frame_entity *to, const struct frame_entity *known)
{
    to->mig_enabled = known->mig_enabled;
    to->minor = known->minor;
    to->total_slices = known->total_slices;
    memcpy(to->uuid, known->uuid, sizeof(to->uuid));
    memcpy(to->name, known->name, sizeof(to->name));
    memcpy(to->bus_id, known->bus_id, sizeof(to->bus_id));
}

static dcgmReturn_t add_gpu(struct dcgm_survey *b, uint32_t id)
{
    const struct dcgm_entity *known = dcgm_survey_known(b, DCGM_FE_GPU, id);
    struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_GPU, id);
    if (!e)
        return DCGM_ST_OK;
    e->record.index = e->gpu_mask_bit = id;
    if (known)
        copy_identity(&e->record, &known->record);
    if (b->old->skipped >> id & 1) {
        e->record.state = FRAME_ENTITY_SKIPPED;
        return DCGM_ST_OK;
    }
    return look_at(b, e, known);
}

static dcgmReturn_t add_all(struct dcgm_survey *b, const unsigned *ids, int count,
                            const dcgmMigHierarchy_v2 *hierarchy)
{
    dcgmReturn_t result = DCGM_ST_OK;
    for (int i = 0; i < count && result == DCGM_ST_OK; i++) {
        uint32_t gpu = b->count;
        if (ids[i] >= LIMIT_GPUS || (i && ids[i] == ids[i - 1]))
            continue;
        result = add_gpu(b, ids[i]);
        if (b->count > gpu && !(b->old->skipped >> ids[i] & 1))
            dcgm_survey_instances(b, hierarchy, gpu);
    }
    return result;
}

dcgmReturn_t dcgm_survey_gpus(struct dcgm_survey *b)
{
    unsigned ids[DCGM_MAX_NUM_DEVICES] = {0};
    int count = 0;
    dcgmMigHierarchy_v2 *hierarchy = NULL;
    dcgmReturn_t result = dcgm_call(b->d, dcgmGetAllDevices, b->d->engine, ids, &count);
    if (result != DCGM_ST_OK && result != DCGM_ST_NVML_NOT_LOADED &&
        result != DCGM_ST_GPUS_DETACHED)
        return result;
    count = result != DCGM_ST_OK || count < 0 ? 0
            : count > DCGM_MAX_NUM_DEVICES    ? DCGM_MAX_NUM_DEVICES
                                              : count;
    qsort(ids, (size_t)count, sizeof(*ids), dcgm_compare_ids);
    result = count ? dcgm_survey_hierarchy(b, &hierarchy) : DCGM_ST_OK;
    if (result == DCGM_ST_OK)
        result = add_all(b, ids, count, hierarchy);
    free(hierarchy);
    return result == DCGM_ST_OK ? dcgm_survey_describe(b) : result;
}
