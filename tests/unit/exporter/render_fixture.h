// SPDX-License-Identifier: Apache-2.0
// A node to render: options, counters, devices, values and holders, built up call by call. Shared
// by the tests of render, the page printer that promtool judges, and the benchmark. Aborts when
// memory is out.
#pragma once

#include "base/clock.h"
#include "exporter/render.h"

#define FIXTURE_NOW_NS (1000 * NS_PER_S)
#define FIXTURE_WALL_NS (UINT64_C(1700000000) * NS_PER_S)
#define FIXTURE_HOLDERS_MAX (LIMIT_ENTITY_COPIES + 10)
#define FIXTURE_ENTITIES_MAX 128

struct fixture {
    struct exporter_options options;
    struct exporter_config config;
    struct inventory inventory;
    struct pod_devices pods;
    struct attribute_result holders;
    struct render_jobs jobs[FIXTURE_ENTITIES_MAX];
    struct pod_metadata *metadata; // NULL until fixture_label
    struct device_view view;
    struct render_owners owners;
    struct render_self self;
    struct render *render;
    struct exp_counts *exp; // NULL: nothing is counted; freed with the fixture
    uint64_t now_ns;        // of values set and of pages
    struct frame_entity entities[FIXTURE_ENTITIES_MAX];
    uint32_t entity_count;
    // DCGM's own list, once fixture_add_dcgm was called; without_nvml: there is no other source.
    struct inventory dcgm;
    struct frame_entity dcgm_entities[FIXTURE_ENTITIES_MAX];
    uint32_t dcgm_count;
    bool without_nvml, with_dcgm;
    struct fixture_holding {
        uint32_t entity;
        struct pod_device row;
        const char *vgpu;
    } holdings[FIXTURE_HOLDERS_MAX];
    size_t holding_count;
    struct buf page;
};

// Counters as in a counters file, devices as -d takes them.
struct fixture *fixture_new(const char *csv, const char *devices);
void fixture_free(struct fixture *f);
static inline maybe_unused void fixture_freep(struct fixture **f)
{
    fixture_free(*f);
}

// A page with something of everything: two whole GPUs, one of them lost, one with two instances,
// the stock counters, owners with awkward names, a job, XID errors, missing values, every number
// about ourselves.
struct fixture *fixture_new_rich(void);
// The same, and DCGM with the first GPU's instances and compute instances, a link of each whole
// GPU, a switch with links, CPUs with cores, and values of the fields that only it has.
struct fixture *fixture_new_rich_dcgm(void);

// Devices, in list order; each returns the entity's index. UUIDs are
// GPU-00000000-0000-0000-0000-00000000000<index>.
uint32_t fixture_add_gpu(struct fixture *f, const char *model);
uint32_t fixture_add_instance(struct fixture *f, uint32_t gpu, uint32_t gpu_instance_id,
                              const char *profile);
extern const char *const fixture_stock_csv; // dcgm-exporter's 26 stock rows
void fixture_fill(struct fixture *f);       // every field of every entity has some value
// Sends the list; again after a change in f->entities.
void fixture_list(struct fixture *f);

// The same at DCGM. From the first call DCGM is in use; it is READY with fixture_list_dcgm. A GPU
// is one of NVML's list, under DCGM's own id; id: the entity's own, of a link its number at its
// owner.
void fixture_use_dcgm(struct fixture *f);
uint32_t fixture_add_dcgm_gpu(struct fixture *f, uint32_t gpu, uint32_t id);
uint32_t fixture_add_dcgm(struct fixture *f, enum frame_entity_kind kind, uint32_t owner,
                          uint32_t id);
#define FIXTURE_ALONE UINT32_MAX // owner of a switch or a CPU
void fixture_list_dcgm(struct fixture *f);
void fixture_dcgm_state(struct fixture *f, enum frame_state_code code);
void fixture_dcgm_record(struct fixture *f, uint32_t entity, uint16_t field,
                         enum frame_status status, enum frame_value_type type, int64_t i64,
                         double f64, const char *string);
void fixture_dcgm_i64(struct fixture *f, uint32_t entity, uint16_t field, int64_t v);
void fixture_dcgm_f64(struct fixture *f, uint32_t entity, uint16_t field, double v);
void fixture_dcgm_string(struct fixture *f, uint32_t entity, uint16_t field, const char *v);
void fixture_dcgm_status(struct fixture *f, uint32_t entity, uint16_t field,
                         enum frame_status status);

void fixture_record(struct fixture *f, uint32_t entity, uint16_t field, enum frame_status status,
                    enum frame_value_type type, int64_t i64, double f64, const char *string);
void fixture_i64(struct fixture *f, uint32_t entity, uint16_t field, int64_t v);
void fixture_f64(struct fixture *f, uint32_t entity, uint16_t field, double v);
void fixture_string(struct fixture *f, uint32_t entity, uint16_t field, const char *v);
void fixture_status(struct fixture *f, uint32_t entity, uint16_t field, enum frame_status status);
void fixture_xid(struct fixture *f, uint32_t entity, uint32_t gpu_instance_id, uint32_t code,
                 uint64_t wall_ns);
void fixture_ready(struct fixture *f, bool xid_events_armed);

// A container holds an entity's device; vgpu NULL: no replica. Strings are borrowed.
void fixture_hold(struct fixture *f, uint32_t entity, const char *namespace_name, const char *pod,
                  const char *container, const char *vgpu);
// What the API server says of a pod: "namespace/name", its UID and the members of its labels, as
// JSON has them. Labels and UIDs are asked for from then on.
void fixture_label(struct fixture *f, const char *key, const char *uid, const char *labels);
// What a page is made from now, of the fixture's own parts.
struct render_input fixture_input(struct fixture *f);
// The page, NUL-terminated, until the next one. Aborts on an error.
const char *fixture_page(struct fixture *f, enum text_format format);
// One family of the last page: from its first comment line to the next family's; "" when it is not
// there.
const char *fixture_family(struct fixture *f, const char *name);
// Whether the last page has this line.
bool fixture_has_line(struct fixture *f, const char *line);
