// SPDX-License-Identifier: Apache-2.0
#include "render_fixture.h"

#include <stdio.h>
#include <stdlib.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fixture: %s\n", what);
    abort();
}

static int compare_ids(const void *a, const void *b)
{
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return (x > y) - (x < y);
}

static void watch(struct fixture *f, struct inventory *inv)
{
    uint16_t ids[LIMIT_COUNTERS], labels[LIMIT_COUNTERS];
    size_t count = 0, label_count = 0;
    for (size_t i = 0; i < f->config.counters.count; i++) {
        const struct counter *c = &f->config.counters.rows[i];
        if (c->field->id < FIELD_EXP_FIRST)
            ids[count++] = c->field->id;
        if (c->type == COUNTER_LABEL)
            labels[label_count++] = c->field->id;
    }
    qsort(ids, count, sizeof(ids[0]), compare_ids);
    must(inventory_set_fields(inv, ids, count, 1) == 0, "fields");
    inventory_set_labels(inv, labels, label_count);
}

struct fixture *fixture_new(const char *csv, const char *devices)
{
    struct fixture *f = calloc(1, sizeof(*f));
    must(f != NULL, "memory");
    f->now_ns = FIXTURE_NOW_NS;
    f->page = BUF_INIT(LIMIT_PAGE_BYTES);
    struct error err = ERROR_INIT;
    int r = counters_parse(sv_from(csv), "test.csv", &f->config.counters, &err);
    must(r == 0, err.text);
    r = selection_parse(sv_from(devices), &f->options.gpus, &err);
    must(r == 0, err.text);
    sv_copy(f->options.hostname, sizeof(f->options.hostname), SV("testhost"));
    f->options.podgpu_families = PODGPU_FAMILIES_CORE;
    f->config.options = &f->options;
    static const uint64_t periods[FIELD_CLASS_COUNT] = {NS_PER_S, 10 * NS_PER_S, 30 * NS_PER_S,
                                                        600 * NS_PER_S};
    memcpy(f->config.period_ns, periods, sizeof(periods));
    inventory_init(&f->inventory);
    watch(f, &f->inventory);
    inventory_init(&f->dcgm);
    device_view_init(&f->view);
    r = selection_parse(SV("f"), &f->options.switches, &err);
    must(r == 0, err.text);
    r = selection_parse(SV("f"), &f->options.cpus, &err);
    must(r == 0, err.text);
    f->self = (struct render_self){
        .started_wall_ns = FIXTURE_WALL_NS,
        .version = "1.2.3",
        .revision = "abc",
        .sources[DEVICE_SOURCE_NVML].sample_last_wall_ns = FIXTURE_WALL_NS + 1500 * NS_PER_MS,
        .sources[DEVICE_SOURCE_NVML].sample_duration_s = 0.25,
        .config_ok = true,
        .config_last_ok_wall_ns = FIXTURE_WALL_NS,
        .attribution_age_s = -1,
    };
    must(render_new(&f->render) == 0, "render");
    return f;
}

static void forget_holders(struct fixture *f)
{
    free(f->holders.devices);
    free(f->holders.holders);
    free(f->pods.rows);
    f->holders = (struct attribute_result){0};
    f->pods = (struct pod_devices){0};
}

void fixture_free(struct fixture *f)
{
    if (!f)
        return;
    render_free(f->render);
    exp_counts_free(f->exp);
    pod_metadata_free(f->metadata);
    forget_holders(f);
    device_view_deinit(&f->view);
    inventory_deinit(&f->inventory);
    inventory_deinit(&f->dcgm);
    counter_list_deinit(&f->config.counters);
    selection_deinit(&f->options.gpus);
    selection_deinit(&f->options.switches);
    selection_deinit(&f->options.cpus);
    buf_deinit(&f->page);
    free(f);
}

// --- Devices ---

uint32_t fixture_add_gpu(struct fixture *f, const char *model)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < f->entity_count; i++)
        index += f->entities[i].kind == FRAME_ENTITY_GPU;
    struct frame_entity *e = &f->entities[f->entity_count];
    *e = (struct frame_entity){
        .kind = FRAME_ENTITY_GPU,
        .state = FRAME_ENTITY_UP,
        .index = index,
        .parent = f->entity_count,
        .minor = index,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = UINT32_MAX,
    };
    snprintf(e->uuid, sizeof(e->uuid), "GPU-00000000-0000-0000-0000-%012u", index);
    snprintf(e->bus_id, sizeof(e->bus_id), "00000000:%02X:00.0", 0x1b + index);
    sv_copy(e->name, sizeof(e->name), sv_from(model));
    return f->entity_count++;
}

uint32_t fixture_add_instance(struct fixture *f, uint32_t gpu, uint32_t gpu_instance_id,
                              const char *profile)
{
    const struct frame_entity *parent = &f->entities[gpu];
    uint32_t siblings = 0;
    for (uint32_t i = 0; i < f->entity_count; i++)
        siblings += f->entities[i].kind == FRAME_ENTITY_GPU_I && f->entities[i].parent == gpu;
    struct frame_entity *e = &f->entities[f->entity_count];
    *e = *parent;
    e->kind = FRAME_ENTITY_GPU_I;
    e->parent = gpu;
    e->gpu_instance_id = gpu_instance_id;
    e->instance_entity_id = parent->index * 7 + siblings;
    e->id = UINT32_MAX;
    snprintf(e->uuid, sizeof(e->uuid), "MIG-%08u-%04u-0000-0000-000000000000", parent->index,
             gpu_instance_id);
    sv_copy(e->profile, sizeof(e->profile), sv_from(profile));
    return f->entity_count++;
}

void fixture_list(struct fixture *f)
{
    struct frame_entities head = {.generation = f->inventory.generation + 1,
                                  .count = f->entity_count};
    struct frame frame = {.type = FRAME_ENTITIES, .as.entities = {&head, f->entities}};
    must(inventory_apply(&f->inventory, &frame) == 0, "entities");
}

// --- DCGM's devices ---

void fixture_use_dcgm(struct fixture *f)
{
    if (!f->with_dcgm)
        watch(f, &f->dcgm);
    f->with_dcgm = true;
}

uint32_t fixture_add_dcgm_gpu(struct fixture *f, uint32_t gpu, uint32_t id)
{
    fixture_use_dcgm(f);
    struct frame_entity *e = &f->dcgm_entities[f->dcgm_count];
    *e = f->entities[gpu];
    e->index = id;
    e->parent = f->dcgm_count;
    return f->dcgm_count++;
}

uint32_t fixture_add_dcgm(struct fixture *f, enum frame_entity_kind kind, uint32_t owner,
                          uint32_t id)
{
    fixture_use_dcgm(f);
    bool of_gpu = owner != FIXTURE_ALONE && f->dcgm_entities[owner].kind == FRAME_ENTITY_GPU;
    f->dcgm_entities[f->dcgm_count] = (struct frame_entity){
        .kind = (uint8_t)kind,
        .state = FRAME_ENTITY_UP,
        .index = of_gpu ? f->dcgm_entities[owner].index : UINT32_MAX,
        .parent = owner == FIXTURE_ALONE ? f->dcgm_count : owner,
        .minor = UINT32_MAX,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = id,
    };
    return f->dcgm_count++;
}

void fixture_dcgm_state(struct fixture *f, enum frame_state_code code)
{
    struct frame_state state = {.code = code};
    struct frame frame = {.type = FRAME_STATE, .as.state = &state};
    must(inventory_apply(&f->dcgm, &frame) == 0, "state");
}

void fixture_list_dcgm(struct fixture *f)
{
    fixture_dcgm_state(f, FRAME_STATE_READY);
    struct frame_entities head = {.generation = f->dcgm.generation + 1, .count = f->dcgm_count};
    struct frame frame = {.type = FRAME_ENTITIES, .as.entities = {&head, f->dcgm_entities}};
    must(inventory_apply(&f->dcgm, &frame) == 0, "entities");
}

// --- Values ---

static void send_record(struct fixture *f, struct inventory *inv, struct frame_record record,
                        const char *string)
{
    record.taken_ns = f->now_ns;
    struct frame_sample head = {
        .generation = inv->generation,
        .watch_id = 1,
        .classes = 1u << FIELD_CLASS_FAST,
        .count = 1,
        .started_ns = f->now_ns,
        .ended_ns = f->now_ns,
    };
    struct frame frame = {.type = FRAME_SAMPLE,
                          .as.sample = {&head, &record, sv_from(string ? string : "")}};
    must(inventory_apply(inv, &frame) == 0, "sample");
}

static struct frame_record record_of(uint32_t entity, uint16_t field, enum frame_status status,
                                     enum frame_value_type type)
{
    return (struct frame_record){
        .entity = entity, .field = field, .status = (uint8_t)status, .type = (uint8_t)type};
}

static void set_value(struct frame_record *r, int64_t i64, double f64, const char *string)
{
    if (r->type == FRAME_VALUE_I64)
        r->value.i64 = i64;
    else if (r->type == FRAME_VALUE_DOUBLE)
        r->value.f64 = f64;
    else if (r->type == FRAME_VALUE_STRING && string)
        r->value.i64 = (int64_t)strlen(string);
}

void fixture_record(struct fixture *f, uint32_t entity, uint16_t field, enum frame_status status,
                    enum frame_value_type type, int64_t i64, double f64, const char *string)
{
    struct frame_record record = record_of(entity, field, status, type);
    set_value(&record, i64, f64, string);
    send_record(f, &f->inventory, record, string);
}

void fixture_dcgm_record(struct fixture *f, uint32_t entity, uint16_t field,
                         enum frame_status status, enum frame_value_type type, int64_t i64,
                         double f64, const char *string)
{
    struct frame_record record = record_of(entity, field, status, type);
    set_value(&record, i64, f64, string);
    send_record(f, &f->dcgm, record, string);
}

void fixture_dcgm_i64(struct fixture *f, uint32_t entity, uint16_t field, int64_t v)
{
    fixture_dcgm_record(f, entity, field, FRAME_OK, FRAME_VALUE_I64, v, 0, NULL);
}

void fixture_dcgm_f64(struct fixture *f, uint32_t entity, uint16_t field, double v)
{
    fixture_dcgm_record(f, entity, field, FRAME_OK, FRAME_VALUE_DOUBLE, 0, v, NULL);
}

void fixture_dcgm_string(struct fixture *f, uint32_t entity, uint16_t field, const char *v)
{
    fixture_dcgm_record(f, entity, field, FRAME_OK, FRAME_VALUE_STRING, 0, 0, v);
}

void fixture_dcgm_status(struct fixture *f, uint32_t entity, uint16_t field,
                         enum frame_status status)
{
    fixture_dcgm_record(f, entity, field, status, FRAME_VALUE_NONE, 0, 0, NULL);
}

void fixture_i64(struct fixture *f, uint32_t entity, uint16_t field, int64_t v)
{
    fixture_record(f, entity, field, FRAME_OK, FRAME_VALUE_I64, v, 0, NULL);
}

void fixture_f64(struct fixture *f, uint32_t entity, uint16_t field, double v)
{
    fixture_record(f, entity, field, FRAME_OK, FRAME_VALUE_DOUBLE, 0, v, NULL);
}

void fixture_string(struct fixture *f, uint32_t entity, uint16_t field, const char *v)
{
    fixture_record(f, entity, field, FRAME_OK, FRAME_VALUE_STRING, 0, 0, v);
}

void fixture_status(struct fixture *f, uint32_t entity, uint16_t field, enum frame_status status)
{
    fixture_record(f, entity, field, status, FRAME_VALUE_NONE, 0, 0, NULL);
}

void fixture_xid(struct fixture *f, uint32_t entity, uint32_t gpu_instance_id, uint32_t code,
                 uint64_t wall_ns)
{
    struct frame_event event = {
        .entity = entity,
        .origin = FRAME_EVENT_NVML,
        .xid = code,
        .gpu_instance_id = gpu_instance_id,
        .taken_ns = f->now_ns,
        .wall_ns = wall_ns,
    };
    struct frame_events head = {.generation = f->inventory.generation, .count = 1};
    struct frame frame = {.type = FRAME_EVENTS, .as.events = {&head, &event}};
    must(inventory_apply(&f->inventory, &frame) == 0, "events");
}

void fixture_ready(struct fixture *f, bool xid_events_armed)
{
    struct frame_state state = {.code = FRAME_STATE_READY, .xid_events_armed = xid_events_armed};
    sv_copy(state.driver_version, sizeof(state.driver_version), SV("550.54.15"));
    struct frame frame = {.type = FRAME_STATE, .as.state = &state};
    must(inventory_apply(&f->inventory, &frame) == 0, "state");
}

// --- Holders ---

static bool same_pod(const struct pod_device *a, const struct pod_device *b)
{
    return strcmp(a->namespace_name, b->namespace_name) == 0 && strcmp(a->pod, b->pod) == 0;
}

static void fill_device(struct fixture *f, uint32_t entity, struct attribute_device_holders *d)
{
    d->first = f->holders.holder_count;
    for (size_t i = 0; i < f->holding_count; i++) {
        const struct fixture_holding *h = &f->holdings[i];
        if (h->entity != entity)
            continue;
        bool new_pod = true, new_container = true;
        for (size_t n = 0; n < d->count && new_container; n++) {
            const struct pod_device *other = &f->pods.rows[f->holders.holders[d->first + n].row];
            if (!same_pod(other, &h->row))
                continue;
            new_pod = false;
            new_container = strcmp(other->container, h->row.container) != 0;
        }
        f->holders.holders[f->holders.holder_count++] =
            (struct attribute_holder){i, h->vgpu ? sv_from(h->vgpu) : (struct sv){0}};
        d->count++;
        d->containers += new_container;
        d->pods += new_pod;
    }
}

void fixture_hold(struct fixture *f, uint32_t entity, const char *namespace_name, const char *pod,
                  const char *container, const char *vgpu)
{
    must(f->holding_count < FIXTURE_HOLDERS_MAX, "too many holders");
    f->holdings[f->holding_count++] = (struct fixture_holding){
        entity, {namespace_name, pod, container, "nvidia.com/gpu", "id", 0}, vgpu};
    forget_holders(f);
    f->pods.rows = calloc(f->holding_count, sizeof(*f->pods.rows));
    f->holders.holders = calloc(f->holding_count, sizeof(*f->holders.holders));
    f->holders.devices = calloc(f->entity_count, sizeof(*f->holders.devices));
    must(f->pods.rows && f->holders.holders && f->holders.devices, "memory");
    f->pods.count = f->holding_count;
    for (size_t i = 0; i < f->holding_count; i++)
        f->pods.rows[i] = f->holdings[i].row;
    f->holders.device_count = f->entity_count;
    for (uint32_t i = 0; i < f->entity_count; i++)
        fill_device(f, i, &f->holders.devices[i]);
    f->owners.rows = &f->pods;
    f->owners.holders = &f->holders;
    f->owners.version++;
}

static void add_json(struct buf *out, struct sv text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"' || text.ptr[i] == '\\')
            buf_add_char(out, '\\');
        buf_add_char(out, text.ptr[i]);
    }
}

void fixture_label(struct fixture *f, const char *key, const char *uid, const char *labels)
{
    struct json_document *document = NULL;
    struct arena arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct pod_record pod;
    struct buf text = BUF_INIT(1u << 20);
    struct sv name = sv_from(key), namespace_name;
    f->options.flags.pod_labels = f->options.flags.pod_uid = true;
    if (!f->metadata)
        must(pod_metadata_new(&f->options, &f->metadata) == 0, "memory");
    sv_next(&name, '/', &namespace_name);
    buf_add_str(&text, "{\"metadata\":{\"namespace\":\"");
    add_json(&text, namespace_name);
    buf_add_str(&text, "\",\"name\":\"");
    add_json(&text, name);
    buf_add_fmt(&text, "\",\"uid\":\"%s\",\"labels\":{%s}}}", uid, labels);
    must(text.error == 0 && json_parse(buf_sv(&text), "pod", &document, NULL) == 0, "labels");
    must(pod_record_from_json(json_root(document), &arena, &pod) == 0, "pod");
    must(pod_metadata_put(f->metadata, POD_METADATA_API_SERVER, &pod) == 0, "memory");
    arena_deinit(&arena);
    json_document_free(document);
    buf_deinit(&text);
    f->owners.metadata = f->metadata;
    f->owners.version++;
}

// --- Pages ---

struct render_input fixture_input(struct fixture *f)
{
    must(device_view_refresh(&f->view, f->without_nvml ? NULL : &f->inventory,
                             f->with_dcgm ? &f->dcgm : NULL) == 0,
         "view");
    return (struct render_input){
        .config = &f->config,
        .view = &f->view,
        .owners = &f->owners,
        .self = &f->self,
        .now_ns = f->now_ns,
        .exp = f->exp,
    };
}

const char *fixture_page(struct fixture *f, enum text_format format)
{
    const struct render_input in = fixture_input(f);
    buf_reset(&f->page);
    must(render_page(f->render, &in, format, &f->page) == 0, "page");
    return buf_cstr(&f->page);
}

const char *fixture_family(struct fixture *f, const char *name)
{
    static char family[1 << 20];
    char first[300];
    snprintf(first, sizeof(first), "# HELP %s ", name);
    const char *page = buf_cstr(&f->page);
    const char *at = strncmp(page, first, strlen(first)) == 0 ? page : NULL;
    if (!at) {
        snprintf(first, sizeof(first), "\n# HELP %s ", name);
        at = strstr(page, first);
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return "";
    const char *end = strstr(at + 1, "\n# HELP ");
    size_t length = end ? (size_t)(end + 1 - at) : strlen(at);
    must(length < sizeof(family), "family too long");
    memcpy(family, at, length);
    family[length] = '\0';
    return family;
}

bool fixture_has_line(struct fixture *f, const char *line)
{
    const char *page = buf_cstr(&f->page);
    size_t length = strlen(line);
    for (const char *at = page; (at = strstr(at, line)); at++)
        if ((at == page || at[-1] == '\n') && (at[length] == '\n' || at[length] == '\0'))
            return true;
    return false;
}

// --- Something of everything ---

static const char rich_csv[] =
    "DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).\n"
    "DCGM_FI_DEV_MEM_CLOCK, gauge, Memory clock frequency (in MHz).\n"
    "DCGM_FI_DEV_MEMORY_TEMP, gauge, Memory temperature (in C).\n"
    "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"
    "DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).\n"
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).\n"
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, Total number of PCIe retries.\n"
    "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\n"
    "DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory utilization (in %).\n"
    "DCGM_FI_DEV_ENC_UTIL, gauge, Encoder utilization (in %).\n"
    "DCGM_FI_DEV_DEC_UTIL , gauge, Decoder utilization (in %).\n"
    "DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.\n"
    "DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB).\n"
    "DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).\n"
    "DCGM_FI_DEV_FB_RESERVED, gauge, Framebuffer memory reserved (in MiB).\n"
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Number of remapped rows for uncorrectable "
    "errors\n"
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, counter, Number of remapped rows for correctable "
    "errors\n"
    "DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether remapping of rows has failed\n"
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, Total number of NVLink bandwidth counters for "
    "all lanes.\n"
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU License status\n"
    "DCGM_FI_DRIVER_VERSION, label, Driver Version\n"
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.\n"
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles the tensor (HMMA) pipe is active.\n"
    "DCGM_FI_PROF_DRAM_ACTIVE, gauge, Ratio of cycles the device memory interface is active "
    "sending or receiving data.\n"
    "DCGM_FI_PROF_PCIE_TX_BYTES, gauge, The rate of data transmitted over the PCIe bus in bytes "
    "per second.\n"
    "DCGM_FI_PROF_PCIE_RX_BYTES, gauge, The rate of data received over the PCIe bus in bytes per "
    "second.\n";

const char *const fixture_stock_csv = rich_csv;

void fixture_fill(struct fixture *f)
{
    for (uint32_t e = 0; e < f->entity_count; e++) {
        for (size_t i = 0; i < f->inventory.field_count; i++) {
            const struct field_info *field = field_find(f->inventory.fields[i]);
            if (field->type == FIELD_STRING)
                fixture_string(f, e, field->id, "550.54.15");
            else if (field->type == FIELD_DOUBLE)
                fixture_f64(f, e, field->id, 0.25 + (double)i + (double)e / 1000);
            else
                fixture_i64(f, e, field->id,
                            field->id == FIELD_XID_ERRORS ? 0 : (int64_t)(1000 * i + e));
        }
    }
}

static void fill_self(struct render_self *s)
{
    s->sources[DEVICE_SOURCE_NVML].starts = 1;
    s->sources[DEVICE_SOURCE_NVML].running = true;
    s->attribution_on = s->attribution_up = true;
    s->attribution_age_s = 0.5;
    s->exp_counts_on = true;
    s->metadata = (struct render_self_metadata){.on = true, .up = true, .pods = 12, .failures = 3};
    s->http = (struct render_self_http){
        .requests = 13, .connections = 17, .open = 2, .web_config_ok = true};
    s->ledger = (struct render_self_ledger){.on = true, .processes = true, .view = "host"};
    s->process_metrics = true;
    s->process = (struct render_self_process){.cpu_seconds = 1.5,
                                              .resident_bytes = 1 << 22,
                                              .max_fds = 1024,
                                              .start_wall_ns = FIXTURE_WALL_NS};
}

static struct fixture *new_rich(const char *more_csv)
{
    struct buf csv = BUF_INIT(1 << 20);
    buf_add_str(&csv, rich_csv);
    buf_add_str(&csv, more_csv);
    struct fixture *f = fixture_new(buf_cstr(&csv), "f");
    buf_deinit(&csv);
    uint32_t mig = fixture_add_gpu(f, "NVIDIA H100 80GB HBM3");
    fixture_add_instance(f, mig, 11, "1g.10gb");
    fixture_add_instance(f, mig, 13, "1g.10gb");
    uint32_t whole = fixture_add_gpu(f, "NVIDIA H100 80GB HBM3"),
             lost = fixture_add_gpu(f, "NVIDIA H100 80GB HBM3");
    fixture_list(f);
    fixture_ready(f, true);
    fixture_fill(f);
    fixture_status(f, whole, 140, FRAME_NOT_SUPPORTED);
    fixture_status(f, 1, 1001, FRAME_NO_DATA);
    static const char *const jobs[] = {"job-1", "job-2"};
    f->jobs[whole] = (struct render_jobs){jobs, ARRAY_SIZE(jobs)};
    f->owners.jobs = f->jobs;
    fixture_hold(f, 1, "kube-system", "train-0", "main", NULL);
    fixture_hold(f, whole, "a\"b", "back\\slash", "new\nline \xff", NULL);
    fixture_xid(f, mig, 13, 31, FIXTURE_WALL_NS);
    fixture_xid(f, lost, UINT32_MAX, 79, FIXTURE_WALL_NS);
    f->entities[lost].state = FRAME_ENTITY_LOST;
    fixture_list(f);
    f->options.unavailable[0] = "enable-pprof";
    f->options.unavailable_count = 1;
    fill_self(&f->self);
    return f;
}

struct fixture *fixture_new_rich(void)
{
    return new_rich("");
}

// --- The same with DCGM ---

static const char parts_csv[] = "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s\n"
                                "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, gauge, l\n"
                                "DCGM_FI_DEV_NVSWITCH_PHYS_ID, label, i\n"
                                "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, u\n"
                                "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c\n"
                                "DCGM_FI_DEV_CPU_VENDOR, label, v\n"
                                "DCGM_FI_DEV_CONNECTX_HEALTH, gauge, x\n";

static void add_parts(struct fixture *f)
{
    uint32_t gpu = fixture_add_dcgm_gpu(f, 0, 1);
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t instance = f->dcgm_count;
        f->dcgm_entities[f->dcgm_count] = f->entities[i];
        f->dcgm_entities[f->dcgm_count].index = 1;
        f->dcgm_entities[f->dcgm_count++].parent = gpu;
        uint32_t compute = fixture_add_dcgm(f, FRAME_ENTITY_GPU_CI, instance, 0);
        f->dcgm_entities[compute].index = 1;
        f->dcgm_entities[compute].gpu_instance_id = f->entities[i].gpu_instance_id;
    }
    for (uint32_t i = 3; i < 5; i++)
        fixture_add_dcgm(f, FRAME_ENTITY_LINK, fixture_add_dcgm_gpu(f, i, i == 3 ? 0 : 2), 0);
    uint32_t nvswitch = fixture_add_dcgm(f, FRAME_ENTITY_SWITCH, FIXTURE_ALONE, 0);
    uint32_t cpu = fixture_add_dcgm(f, FRAME_ENTITY_CPU, FIXTURE_ALONE, 0);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_add_dcgm(f, FRAME_ENTITY_LINK, nvswitch, i);
        fixture_add_dcgm(f, FRAME_ENTITY_CPU_CORE, cpu, i);
    }
    fixture_list_dcgm(f);
}

static void fill_parts(struct fixture *f)
{
    for (uint32_t e = 0; e < f->dcgm_count; e++) {
        for (size_t i = 0; i < f->dcgm.field_count; i++) {
            const struct field_info *field = field_find(f->dcgm.fields[i]);
            if (field->level == FIELD_LEVEL_NONE || field->id == FIELD_XID_ERRORS)
                continue;
            if (field->type == FIELD_STRING)
                fixture_dcgm_string(f, e, field->id, "a \"vendor\"");
            else if (field->type == FIELD_DOUBLE)
                fixture_dcgm_f64(f, e, field->id, 0.5 + (double)e);
            else
                fixture_dcgm_i64(f, e, field->id, (int64_t)(100 * i + e));
        }
    }
}

struct fixture *fixture_new_rich_dcgm(void)
{
    struct fixture *f = new_rich(parts_csv);
    add_parts(f);
    fill_parts(f);
    return f;
}
