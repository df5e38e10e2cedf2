// SPDX-License-Identifier: Apache-2.0
// A scenario file into a node. The format is described in README.md.
#include "scenario_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"
#include "symbol_table.h"

static int compile_script(struct compile *c, const struct yaml_node *list)
{
    static const char *const known[] = {"at", "do", NULL};
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next) {
        const struct yaml_node *action = yaml_find(y, "do");
        struct buf out = BUF_INIT(1 << 20);
        int64_t at;
        rc = yaml_check_keys(y, c->file, known, c->err);
        if (rc == 0 && !action)
            rc = compile_refuse(c, y, "expected {at: TIME, do: VERB ...}");
        if (rc == 0)
            rc = compile_time(c, yaml_find(y, "at"), 0, &at);
        if (rc == 0)
            rc = compile_at(c, action, sim_command_line(c->n, at, action->scalar, &out, c->err));
        buf_deinit(&out);
    }
    return rc;
}

static void add_symbols(struct sim_node *n)
{
    static const char *const dcgm[] = {
#define DCGM_SYMBOL(name) #name,
#include "dcgm_symbols.def"
#undef DCGM_SYMBOL
    };
    static const char *const cuda[] = {
#define CUDA_SYMBOL(name) #name,
#include "cuda_symbols.def"
#undef CUDA_SYMBOL
    };
    static const char *const kubelet[] = {
        "kubelet.v1.List",    "kubelet.v1.GetAllocatableResources",
        "kubelet.v1.Get",     "kubelet.v1alpha1.List",
        "kubelet.pods.List",  "kubelet.pods.Get",
        "kubelet.pods.Watch", "kubelet.rejected"};
    uint32_t at = 0;
    for (size_t i = 0; i < sim_driver_symbol_count && at < SIM_MAX_SYMBOLS; i++, at++) {
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name),
                sv_from(sim_driver_symbols[i].name));
        n->symbols[at].branch = sim_driver_symbols[i].branch;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kubelet) && at < SIM_MAX_SYMBOLS; i++, at++)
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name), sv_from(kubelet[i]));
    for (size_t i = 0; i < ARRAY_SIZE(dcgm) && at < SIM_MAX_SYMBOLS; i++, at++)
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name), sv_from(dcgm[i]));
    for (size_t i = 0; i < ARRAY_SIZE(cuda) && at < SIM_MAX_SYMBOLS; i++, at++)
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name), sv_from(cuda[i]));
    n->symbol_count = at;
}

static int node_signal(struct compile *c, enum sim_field field, int64_t value)
{
    struct sim_segment s = {.base = value * 1000000};
    return sim_add_segment(c->n, SIM_NODE, field, &s, c->err);
}

static int prepare(struct compile *c)
{
    static const struct {
        enum sim_field field;
        int64_t value;
    } defaults[] = {
        {SIM_DRIVER_INIT, 0},         {SIM_DRIVER_UNKNOWN_FIELDS, 0}, {SIM_KUBELET_DOWN, 0},
        {SIM_KUBELET_SHORT, 0},       {SIM_KUBELET_LIMITED, 0},       {SIM_KUBELET_BURST, 10},
        {SIM_KUBELET_RATE, 100},      {SIM_KUBELET_DELAY, 0},         {SIM_KUBELET_SILENT, 0},
        {SIM_KUBELET_V1, 1},          {SIM_KUBELET_V1ALPHA1, 1},      {SIM_KUBELET_PAD, 0},
        {SIM_KUBELET_ALLOCATABLE, 1}, {SIM_KUBELET_DRA, 1},           {SIM_KUBELET_COMPLETED, 0},
        {SIM_KUBELET_PODS_API, 0},    {SIM_PROCESS_LAG, 0},           {SIM_PROCESS_UTILIZATION, 1},
        {SIM_MPS_HIDDEN, 0},          {SIM_PIDS_HIDDEN, 0},           {SIM_DCGM_EMBEDDED, 0},
        {SIM_DCGM_PROFILING, 0},      {SIM_DCGM_SLOW_CONNECT, 0},
    };
    struct sim_node *n = c->n;
    for (uint32_t i = 0; i <= SIM_MAX_GPUS; i++)
        compile_clear_gpu(&n->gpus[i]);
    n->string_bytes = 1;
    n->rate_ppm = SIM_PPM;
    atomic_store(&n->frozen_ns, INT64_MIN);
    add_symbols(n);
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(defaults) && rc == 0; i++)
        rc = node_signal(c, defaults[i].field, defaults[i].value);
    return rc;
}

static int compile_driver(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"version",           "nvml",    "cuda", "library",
                                        "reinit_after_loss", "signals", NULL};
    struct sim_node *n = c->n;
    const struct yaml_node *version = y ? yaml_find(y, "version") : NULL,
                           *nvml = y ? yaml_find(y, "nvml") : NULL;
    if (!version)
        return error_set_at(c->err, -EINVAL, c->file, 1, 1, "expected driver: {version: ...}");
    int rc = yaml_check_keys(y, c->file, known, c->err);
    struct sv rest = version->scalar, major;
    uint64_t branch;
    if (rc == 0 && (!sv_next(&rest, '.', &major) || num_parse_u64(major, 300, 9999, &branch) != 0))
        rc = compile_refuse(c, version, "expected a driver version such as 550.90.07");
    if (rc < 0)
        return rc;
    n->driver_branch = (uint32_t)branch;
    sv_copy(n->driver_version, sizeof(n->driver_version), version->scalar);
    if (nvml)
        sv_copy(n->nvml_version, sizeof(n->nvml_version), nvml->scalar);
    else
        (void)snprintf(n->nvml_version, sizeof(n->nvml_version), "12.%s", n->driver_version);
    const struct yaml_node *cuda = yaml_find(y, "cuda"), *library = yaml_find(y, "library");
    const struct yaml_node *reinit = yaml_find(y, "reinit_after_loss");
    n->cuda_version = 12040;
    if (cuda)
        rc = compile_u32(c, cuda, &n->cuda_version);
    if (rc == 0 && reinit)
        rc = compile_u32(c, reinit, &n->reinit_after_loss);
    n->old_library = library && sv_equals(library->scalar, SV("old"));
    return rc == 0 ? compile_signals(c, SIM_NODE, "driver.", yaml_find(y, "signals")) : rc;
}

// Sharers of a GPU take turns: their loads may not add up to more than the whole.
static int check_loads(struct compile *c)
{
    const struct sim_node *n = c->n;
    for (uint32_t gpu = 0; gpu < n->gpu_count; gpu++) {
        for (int64_t step = 0; step < 4000 && n->gpus[gpu].load == SIM_NONE; step++) {
            int64_t t = step * 97000000, sum = 0;
            for (uint32_t i = n->gpus[gpu].processes; i != SIM_NONE;
                 i = n->processes[i].next_on_gpu)
                sum += n->processes[i].instance == SIM_NONE ? sim_process_load_ppm(n, i, t) : 0;
            if (sum > SIM_PPM)
                return error_set(c->err, -EINVAL,
                                 "%s: the loads on GPU %u add up to %.3f at %.3f s", c->file, gpu,
                                 (double)sum / 1e6, (double)t / 1e9);
        }
    }
    return 0;
}

// Shapes of cgroup paths that run_node.py writes (procfs.py).
static int compile_cgroups(struct compile *c, const struct yaml_node *y)
{
    static const char *const shapes[] = {"systemd",  "cgroupfs", "crio",   "docker",
                                         "mismatch", "kind",     "hybrid", "inside"};
    if (!y)
        return sim_add_string(c->n, SV("systemd"), &c->n->cgroups, c->err);
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        if (sv_equals(y->scalar, sv_from(shapes[i])))
            return compile_text(c, y, &c->n->cgroups);
    }
    return compile_refuse(c, y, "no such shape of cgroups");
}

static int compile_root(struct compile *c, const struct yaml_node *root)
{
    static const char *const known[] = {"node",      "driver",  "models", "gpus", "pods",
                                        "processes", "kubelet", "script", "dcgm", "cgroups",
                                        "claims",    "slices",  NULL};
    const struct yaml_node *gpus = yaml_find(root, "gpus"), *pods = yaml_find(root, "pods");
    int rc = yaml_check_keys(root, c->file, known, c->err);
    if (rc == 0)
        rc = prepare(c);
    const struct yaml_node *name = yaml_find(root, "node");
    sv_copy(c->n->name, sizeof(c->n->name), name ? name->scalar : SV("sim-node-0"));
    if (rc == 0)
        rc = compile_driver(c, yaml_find(root, "driver"));
    for (const struct yaml_node *y = gpus ? gpus->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_gpu(c, y);
    if (rc == 0)
        rc = compile_dcgm(c, yaml_find(root, "dcgm"));
    if (rc == 0)
        rc = compile_signals(c, SIM_NODE, "kubelet.", yaml_find(root, "kubelet"));
    for (const struct yaml_node *y = pods ? pods->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_pod(c, y);
    if (rc == 0)
        rc = compile_processes(
            c, yaml_find(root, "processes"),
            (struct compile_place){SIM_NONE, SIM_NONE, {SIM_ALWAYS, SIM_FOREVER}});
    if (rc == 0)
        rc = compile_cgroups(c, yaml_find(root, "cgroups"));
    if (rc == 0)
        rc = compile_node_extra(c, root);
    if (rc == 0)
        rc = compile_script(c, yaml_find(root, "script"));
    return rc == 0 ? check_loads(c) : rc;
}

// Models stand in the scenario, or in a file beside it that several share.
struct models {
    char path[512];
    struct buf text;
    struct yaml_document *d;
};

static int load_models(struct compile *c, const struct yaml_node *root, struct models *m)
{
    const struct yaml_node *y = yaml_find(root, "models");
    c->models = y;
    c->models_file = c->file;
    if (!y || y->kind == YAML_MAPPING)
        return 0;
    const char *slash = strrchr(c->file, '/');
    int dir = slash ? (int)(slash - c->file) + 1 : 0;
    int wrote = snprintf(m->path, sizeof(m->path), "%.*s%.*s", dir, c->file, SV_FMT(y->scalar));
    if (wrote < 0 || (size_t)wrote >= sizeof(m->path))
        return compile_refuse(c, y, "the path is too long");
    int rc = compile_at(c, y, file_read(m->path, &m->text, c->err));
    if (rc == 0)
        rc = yaml_parse(buf_sv(&m->text), m->path, &m->d, c->err);
    if (rc < 0)
        return rc;
    c->models = yaml_root(m->d);
    c->models_file = m->path;
    return 0;
}

int sim_compile(struct sim_node *n, struct sv text, const char *file, struct error *err)
{
    struct error local = ERROR_INIT;
    struct compile c = {.n = n, .file = file, .err = err ? err : &local};
    struct models models = {.text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES)};
    struct yaml_document *d = NULL;
    int rc = yaml_parse(text, file, &d, c.err);
    if (rc == 0)
        rc = load_models(&c, yaml_root(d), &models);
    if (rc == 0)
        rc = compile_root(&c, yaml_root(d));
    yaml_document_free(models.d);
    buf_deinit(&models.text);
    yaml_document_free(d);
    if (rc == 0) {
        n->magic = SIM_MAGIC;
        n->layout = SIM_LAYOUT;
        n->bytes = sizeof(*n);
    }
    return rc;
}
