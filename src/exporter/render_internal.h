// SPDX-License-Identifier: Apache-2.0
// Between the files of render: render.c (entry, what is kept and when it is made anew),
// render_layout.c (which families there are), render_samples.c (which samples), render_choice.c (of
// which devices), render_labels.c (their labels), render_devices.c (DCGM families), render_exp.c
// (dcgm-exporter's own counters), render_podgpu.c and render_fields.c (podgpu's own device and
// field families), render_ledger.c and
// render_ledger_layout.c (the ledger's families), render_node.c (devices of the node),
// render_self.c (numbers about ourselves), render_families_table.c (names, types and help of
// podgpu's families).
#pragma once

#include "exporter/render.h"
#include "exporter/render_ledger.h"
#include "exporter/render_node.h"

// A piece of layout.text.
struct render_span {
    uint32_t at, bytes;
};

// One sample in each family of a list: an entity, or a copy of it for one of its holders or jobs.
struct render_sample {
    uint32_t entity;           // position in view.primary->entities; of parts in DCGM's
    uint32_t gpu;              // of its GPU in view.primary; itself for a GPU; UINT32_MAX: none
    uint32_t split;            // bytes of labels before the place of err_code and err_msg
    struct render_span labels; // `{gpu="0",...} `
    bool of_pod;               // shows what a pod's processes use, and not what the device does
    struct render_span uid;    // the pod's, with its NUL
};

struct render_samples {
    struct render_sample *items;
    size_t count, capacity;
};

// dcgm-exporter's own counters have labels of their own, at most two each, whose values come with
// each page. Fields FIELD_EXP_FIRST and up: XID_ERRORS_COUNT, CLOCK_EVENTS_COUNT,
// GPU_HEALTH_STATUS, P2P_STATUS, CLOCK_EVENTS_TOTAL, XID_ERRORS_TOTAL.
#define RENDER_EXP_COUNT 6
#define RENDER_EXP_LABELS 2

// A sample's labels with room for them: `,name="value"` goes to these places, in bytes from the
// start of labels. Item i is of the device of item i of the family's list (render_samples_of).
struct render_exp_sample {
    struct render_span labels;
    uint32_t at[RENDER_EXP_LABELS];
};

struct render_exp_samples {
    struct render_exp_sample *items;
    size_t count, capacity;
};

// One row of the counters file. Its samples are those of the lists of its groups, one after the
// other; nothing of the configuration is borrowed but static data.
struct render_device_family {
    const struct field_info *field;
    struct render_span header; // HELP and TYPE lines
    struct render_span name;
    struct device_slots slots;
    uint64_t horizon_ns; // how old a value may be
    uint32_t
        first_code[RENDER_GROUP_COUNT]; // position in layout.codes: one a sample, in list order
    uint8_t groups;                     // bit a group whose devices have this field
    uint8_t shared; // bit a group of other devices, which show it where DCGM has it for them: that
                    // they have none is not told
    bool board;     // values are the GPU's, not the instance's
    bool process;   // its copies for holders show what their processes use (layout.process)
    bool label;     // no samples of its own
    bool exp;       // of dcgm-exporter's own counters
};

// Why a sample was not there. Below FRAME_STATUS_END: enum frame_status.
enum render_code {
    RENDER_CODE_SHOWN = FRAME_OK,
    RENDER_CODE_DOWN = FRAME_STATUS_END,
    RENDER_CODE_STALE,
    RENDER_CODE_NOT_NUMERIC,
    RENDER_CODE_BLANK,      // DCGM's own sentinels for "no value"
    RENDER_CODE_UNSEEN,     // not looked at: nothing of it is kept
    RENDER_CODE_SHOWN_DCGM, // DCGM's value; RENDER_CODE_SHOWN: NVML's
    RENDER_CODE_END,
};

static inline bool render_is_shown(enum render_code code)
{
    return code == RENDER_CODE_SHOWN || code == RENDER_CODE_SHOWN_DCGM;
}

// What can be said of DCGM as a whole where devices that it alone knows are missing.
enum render_dcgm {
    RENDER_DCGM_UNKNOWN, // before the first page
    RENDER_DCGM_NONE,    // not in use
    RENDER_DCGM_AWAY,    // in use, and no host engine answers
    RENDER_DCGM_THERE,
};

// Everything a layout was made from. All members are of one size, so there is no padding and memcmp
// compares.
struct render_key {
    const void *config, *options, *counters, *primary, *nvml, *dcgm, *entities, *fields, *pod_rows,
        *holders, *metadata, *jobs, *usage;
    uint64_t config_hash, counter_count, entity_count, field_count, layout, owners_version;
};

// The podgpu families, in page order; rows of render_families.
enum render_family_id {
    RENDER_GPU_UP,
    RENDER_GPU_STATE_INFO,
    RENDER_GPU_INFO,
    RENDER_GPU_XID_ERRORS,
    RENDER_GPU_XID_LAST_TIMESTAMP,
    RENDER_GPU_XID_ADVICE_INFO,
    RENDER_GPU_RECOVERY_ACTION_INFO,
    RENDER_GPU_CLOCKS_EVENT_ACTIVE,
    RENDER_GPU_BUSY,
    RENDER_GPU_ENERGY,
    RENDER_GPU_MEMORY_USED,
    RENDER_GPU_MEMORY_TOTAL,
    RENDER_GPU_UNATTRIBUTED_BUSY,
    RENDER_GPU_UNATTRIBUTED_ENERGY,
    RENDER_GPU_UNATTRIBUTED_MEMORY,
    RENDER_GPU_ENDED_BUSY,
    RENDER_GPU_ENDED_ENERGY,
    RENDER_GPU_UTILIZATION,
    RENDER_CONTAINER_SHARE,
    RENDER_CONTAINER_ALLOCATED,
    RENDER_CONTAINER_BUSY,
    RENDER_CONTAINER_ENERGY,
    RENDER_CONTAINER_MEMORY,
    RENDER_CONTAINER_PROCESSES,
    RENDER_CONTAINER_IDLE,
    RENDER_ATTRIBUTION_INFO,
    RENDER_POD_INFO,
    RENDER_NODE_ALLOCATABLE,
    RENDER_NODE_ALLOCATED,
    RENDER_NODE_IDLE,
    RENDER_BUILD_INFO,
    RENDER_START_TIME,
    RENDER_FEATURE_UNAVAILABLE_INFO,
    RENDER_FIELD_SOURCE_INFO,
    RENDER_FIELD_UNAVAILABLE_INFO,
    RENDER_DEVICE_SELECTION_OK,
    RENDER_SERIES_DROPPED,
    RENDER_SOURCE_UP,
    RENDER_SOURCE_STATE_INFO,
    RENDER_LAST_SAMPLE_TIMESTAMP,
    RENDER_SAMPLE_DURATION,
    RENDER_ERRORS,
    RENDER_HELPER_STARTS,
    RENDER_HELPER_RUNNING,
    RENDER_HELPER_RELEASED,
    RENDER_ATTRIBUTION_UP,
    RENDER_ATTRIBUTION_AGE,
    RENDER_ATTRIBUTION_POLLS,
    RENDER_ATTRIBUTION_FAILURES,
    RENDER_ATTRIBUTION_RATE_LIMITED,
    RENDER_ATTRIBUTION_UNKNOWN_IDS,
    RENDER_ATTRIBUTION_SUPERSEDED_IDS,
    RENDER_ATTRIBUTION_ROWS,
    RENDER_LEDGER_INTERVALS,
    RENDER_LEDGER_SCALED,
    RENDER_LEDGER_GAPS,
    RENDER_LEDGER_HOLDER_CHANGES,
    RENDER_LEDGER_REFUSED,
    RENDER_LEDGER_EARLY_ENDED,
    RENDER_PROCESSES,
    RENDER_PROCESS_VIEW_INFO,
    RENDER_UNNAMED_PODS,
    RENDER_ATTRIBUTION_DISAGREEMENTS,
    RENDER_POD_METADATA_UP,
    RENDER_POD_METADATA_PODS,
    RENDER_POD_METADATA_FAILURES,
    RENDER_POD_METADATA_SKIPPED,
    RENDER_POD_LABELS_DROPPED,
    RENDER_POD_SOURCE_UP,
    RENDER_CONFIG_RELOAD_SUCCESS,
    RENDER_CONFIG_RELOAD_TIMESTAMP,
    RENDER_CONFIG_RELOADS,
    RENDER_CONFIG_RELOAD_FAILURES,
    RENDER_CONFIG_DUPLICATES,
    RENDER_EXP_COUNTS_DROPPED,
    RENDER_HTTP_REQUESTS,
    RENDER_HTTP_REJECTED,
    RENDER_HTTP_CONNECTIONS,
    RENDER_HTTP_CONNECTIONS_CLOSED,
    RENDER_HTTP_OPEN_CONNECTIONS,
    RENDER_WEB_CONFIG_RELOAD_SUCCESS,
    RENDER_PAGE_BYTES,
    RENDER_PAGE_READERS_CUT,
    RENDER_PAGE_WITHOUT_OWNERS,
    RENDER_PAGE_WITHOUT_POD_LABELS,
    RENDER_PROCESS_CPU,
    RENDER_PROCESS_START,
    RENDER_PROCESS_RESIDENT,
    RENDER_PROCESS_VIRTUAL,
    RENDER_PROCESS_OPEN_FDS,
    RENDER_PROCESS_MAX_FDS,
    RENDER_FAMILY_COUNT,
};

struct render_family {
    const char *name;
    enum text_type type;
    const char *labels; // comma-separated, in page order; "" for none
    const char *help;
};

extern const struct render_family render_families[RENDER_FAMILY_COUNT];

#define RENDER_SELF_LINES_MAX 128

// What is kept of one format. Spans point into text.
struct render_layout {
    bool valid;
    enum text_format format;
    struct render_key key;
    struct buf text;
    struct render_samples groups[RENDER_GROUP_COUNT]; // of the chosen devices
    struct render_samples board; // one a GPU; used with --mig-board-fields=once only
    // Each chosen device, then one for each of its holders: of GPU_UTIL and FB_USED, with
    // --kubernetes-virtual-gpus and numbers per process only.
    struct render_samples process;
    struct render_exp_samples exp[RENDER_EXP_COUNT]; // by field id; empty where not asked for
    struct render_device_family *families;
    size_t family_count, family_capacity;
    uint8_t *codes; // enum render_code of each sample on the last page
    size_t code_count, code_capacity;
    bool *shown; // per entity of view.primary: podgpu_gpu_* families have it
    size_t shown_capacity;
    size_t duplicates;               // samples left out because another one has the same labels
    size_t copies_dropped;           // over LIMIT_ENTITY_COPIES
    bool listed[RENDER_GROUP_COUNT]; // there are such devices, chosen or not
    char selection_errors[RENDER_GROUP_COUNT][160]; // "" when all that was asked for is there

    // Ready text, each made anew when what it says changed.
    struct buf gpu_text; // podgpu_gpu_*
    uint64_t gpu_signature;
    size_t gpu_lines;
    struct buf pods_text; // podgpu_pod_info
    uint64_t pods_signature;
    size_t pods_lines;
    struct buf health_text; // podgpu_gpu_recovery_action_info, podgpu_gpu_clocks_event_active
    uint64_t health_signature;
    size_t health_lines;
    struct buf about_text; // build_info, feature_unavailable_info
    size_t about_lines;
    struct buf field_text; // field_source_info, field_unavailable_info
    size_t field_lines;
    bool field_stale; // a code or dcgm changed since field_text was made
    enum render_dcgm dcgm;
    struct render_ledger ledger;
    struct render_node node;
    struct render_span self_headers[RENDER_FAMILY_COUNT];
    struct render_span self_lines[RENDER_SELF_LINES_MAX];
};

struct render {
    struct render_layout layouts[TEXT_FORMAT_COUNT];
    struct render_ledger_names names;
    size_t device_series, all_series;
    const struct render_layout *last; // of the last page
};

// --- render_labels.c ---
// One holder of an entity as labels show it; all NULL: none.
struct render_owner {
    const char *namespace_name, *pod, *container;
    struct sv vgpu;
    const struct pod_metadata_entry *metadata; // NULL: nothing is known of the pod
    const char *uid;                           // to be shown even when it is ""; NULL: as metadata
    // The layout of --kubernetes-enable-dra: the claim's row, else NULL; of a MIG device its
    // profile and UUID, "" unknown, else NULL.
    const struct pod_device *claimed;
    const char *mig_profile, *mig_uuid;
};
struct render_label_row {
    char name[192]; // as exposed
    const struct field_info *field;
};
struct render_labels {
    const struct render_input *in;
    struct render_label_row *rows; // configured labels, ascending by exposed name
    size_t row_count;
};
// Fills rows from the counters file. 0, -ENOMEM.
int must_use render_labels_init(struct render_labels *l, const struct render_input *in);
void render_labels_deinit(struct render_labels *l);
// `{gpu="0",...} ` of a DCGM sample.
struct render_subject {
    enum render_group group;
    uint32_t at;                           // position of entity, as in struct render_sample
    const struct inventory_entity *entity; // of view.primary; of parts DCGM's
    const struct inventory_entity *whole;  // of an instance and of a link of a GPU its GPU, of
                                           // others the switch or CPU; of those themselves
    const struct render_owner *owner;      // of others than GPUs and their parts nobody
    const char *job;                       // NULL: none
    // Labels that are put in later, ascending, up to NULL; NULL: none. A pod's label of such a name
    // gives way.
    const char *const *extras;
};
// Places in it, in bytes from its start.
struct render_places {
    uint32_t split;                     // err_code and err_msg
    uint32_t extras[RENDER_EXP_LABELS]; // one each
};
void render_labels_add(const struct render_labels *l, const struct render_subject *subject,
                       struct buf *out, struct render_places *out_places);
// The names of a counter's own labels, ascending, up to NULL.
const char *const *render_exp_labels(uint16_t field);
// `{gpu="0",UUID="...",hostname="..."[,GPU_I_ID="1"]` of podgpu's own device families, left open.
void render_labels_add_device(const struct render_input *in, const struct inventory_entity *entity,
                              const struct inventory_entity *gpu, struct buf *out);
// The label or labels that --hostname-label asks for.
void render_labels_add_hostname(const struct render_input *in, struct buf *out);
// The model name as --replace-blanks-in-model-name wants it.
void render_labels_add_model(const struct render_input *in, const struct inventory_entity *gpu,
                             struct buf *out);

// --- render_choice.c ---
// Positions of the devices that -d, -s and -p choose, a group each, in page order, as in struct
// render_sample. Says in the layout what was not found, which devices podgpu_gpu_* shows, and what
// was left out as another one's double.
struct render_choice {
    uint32_t *at[RENDER_GROUP_COUNT];
    size_t count[RENDER_GROUP_COUNT];
    uint32_t *link_gpus; // of each link in at: its GPU in view.primary; UINT32_MAX: a switch has it
};
// 0, -ENOMEM; to be deinited in either case.
int must_use render_choose(struct render_layout *l, const struct render_input *in,
                           struct render_choice *out);
void render_choice_deinit(struct render_choice *c);

// --- render_samples.c ---
// Fills the lists of samples. 0, -ENOMEM, the error of the layout's text.
int must_use render_samples_build(struct render_layout *l, const struct render_input *in);

// --- render_layout.c ---
// Whether a row has its place in render_exp.c.
bool render_is_exp(const struct counter *c);
// Whether a field's samples are the GPU's: --mig-board-fields=once shows them once.
bool render_is_of_board(const struct field_info *field);
// Of the two that show what pods' processes use with --kubernetes-virtual-gpus.
bool render_is_per_process(const struct render_input *in, const struct counter *c);
// Room for count items of size bytes in *items; what was in it is lost. 0, -ENOMEM.
int must_use render_make_room(void *items, size_t *capacity, size_t count, size_t size);
// Makes everything of *l anew. 0, -ENOMEM, -EFBIG.
int must_use render_layout_build(struct render_layout *l, const struct render_input *in,
                                 const struct render_key *key);
void render_layout_deinit(struct render_layout *l);

static inline const struct inventory_entity *render_gpu_of(const struct inventory *inv,
                                                           const struct inventory_entity *entity)
{
    return &inv->entities[entity->info.parent];
}

// The GPUs' samples of a family.
static inline const struct render_samples *render_samples_of(const struct render_layout *l,
                                                             const struct render_device_family *f)
{
    if (f->process)
        return &l->process;
    return f->board && l->board.count > 0 ? &l->board : &l->groups[RENDER_GROUP_GPU];
}

static inline bool render_has_group(uint8_t groups, int group)
{
    return (groups >> group) & 1;
}

// --- render_devices.c ---
// Appends the families of the counters file and remembers in l->codes what was missing. Returns the
// sample count.
size_t render_devices_add(struct render_layout *l, const struct render_input *in, struct buf *out);
// Whether a value can be a sample at all.
enum render_code render_value_code(const struct inventory_value *value);

// What was there or missing of a sample: at is its place in codes.
void render_note(struct render_layout *l, size_t at, enum render_code code);
// A line of one of dcgm-exporter's own counters: sample is a position in the family's list; a label
// whose value has no .ptr is left out.
void render_add_exp_line(const struct render_layout *l, const struct render_device_family *f,
                         size_t sample, const struct sv values[RENDER_EXP_LABELS], int64_t number,
                         struct buf *out);

// --- render_exp.c ---
// Appends a family of dcgm-exporter's own counters, its header first, and notes a code for each
// sample of its list. Returns the count of lines.
size_t render_exp_add(struct render_layout *l, const struct render_device_family *f,
                      const struct render_input *in, struct buf *out);

// --- render_podgpu.c, render_fields.c, render_self.c: each returns 0 or the error of its buffer
// ---
int must_use render_gpu_refresh(struct render_layout *l, const struct render_input *in);
// render_pods.c
int must_use render_pods_refresh(struct render_layout *l, const struct render_input *in);
// render_health.c
int must_use render_health_refresh(struct render_layout *l, const struct render_input *in);
int must_use render_about_build(struct render_layout *l, const struct render_input *in);
int must_use render_fields_refresh(struct render_layout *l, const struct render_input *in);
void render_self_build(struct render_layout *l);
size_t render_self_add(const struct render_layout *l, const struct render_input *in,
                       struct buf *out);

static inline void render_add_header(struct buf *out, enum text_format format,
                                     enum render_family_id id)
{
    const struct render_family *f = &render_families[id];
    text_add_family(out, format, sv_from(f->name), f->type, sv_from(f->help));
}

// Into a signature of what a kept text says.
static inline uint64_t render_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static inline void render_add_span(const struct render_layout *l, struct render_span s,
                                   struct buf *out)
{
    buf_add(out, l->text.data + s.at, s.bytes);
}
