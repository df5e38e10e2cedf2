// SPDX-License-Identifier: Apache-2.0
// Fields that the node's truth already knows, converted as DCGM converts what NVML says: power in
// watts, limits in whole watts, memory in MiB, NVLink throughput in units of 1000 KiB a second.
#include "double.h"

#include <stdio.h>
#include <string.h>

enum shape {
    WHOLE,      // as NVML says it
    NO_MIG,     // the same, not supported while MIG is on
    MILLI,      // thousandths, as a double
    WHOLE_KILO, // thousandths, cut to whole ones, as a double
    MIB,
    RATIO,      // mean of a percent signal between samples, 0..1, of the entity's own instance
    BYTES_RATE, // a counter of bytes, growth per second
    KIB_RATE,   // a counter of KiB, growth in bytes per second
    LINK_RATE,  // a counter of KiB, growth in 1000 KiB per second; 0 at first
};

struct automatic {
    uint16_t field;
    uint16_t signal; // enum sim_field
    enum shape shape;
};

static const struct automatic table[] = {
    {65, SIM_COMPUTE_MODE, WHOLE},
    {66, SIM_PERSISTENCE, WHOLE},
    {67, SIM_MIG_MODE, WHOLE},
    {90, SIM_BAR1_TOTAL, MIB},
    {92, SIM_BAR1_USED, MIB},
    {100, SIM_SM_CLOCK, WHOLE},
    {101, SIM_MEM_CLOCK, WHOLE},
    {102, SIM_VIDEO_CLOCK, WHOLE},
    {110, SIM_APP_SM_CLOCK, WHOLE},
    {111, SIM_APP_MEM_CLOCK, WHOLE},
    {112, SIM_EVENT_REASONS, WHOLE},
    {113, SIM_MAX_SM_CLOCK, WHOLE},
    {114, SIM_MAX_MEM_CLOCK, WHOLE},
    {115, SIM_MAX_VIDEO_CLOCK, WHOLE},
    {140, SIM_MEM_TEMPERATURE, WHOLE},
    {150, SIM_TEMPERATURE, WHOLE},
    {151, SIM_TEMP_MEM_MAX, WHOLE},
    {152, SIM_TEMP_GPU_MAX, WHOLE},
    {153, SIM_MARGIN_TEMPERATURE, WHOLE},
    {155, SIM_POWER, MILLI},
    {156, SIM_ENERGY, WHOLE},
    {157, SIM_POWER, MILLI},
    {158, SIM_TEMP_SLOWDOWN, WHOLE},
    {159, SIM_TEMP_SHUTDOWN, WHOLE},
    {160, SIM_POWER_LIMIT, WHOLE_KILO},
    {161, SIM_POWER_LIMIT_MIN, WHOLE_KILO},
    {162, SIM_POWER_LIMIT_MAX, WHOLE_KILO},
    {163, SIM_POWER_LIMIT_DEFAULT, WHOLE_KILO},
    {164, SIM_POWER_LIMIT_ENFORCED, WHOLE_KILO},
    {190, SIM_PSTATE, WHOLE},
    {191, SIM_FAN_SPEED, WHOLE},
    {202, SIM_PCIE_REPLAY, WHOLE},
    {203, SIM_GPU_UTIL, NO_MIG},
    {204, SIM_MEM_UTIL, NO_MIG},
    {206, SIM_ENC_UTIL, NO_MIG},
    {207, SIM_DEC_UTIL, NO_MIG},
    {235, SIM_PCIE_GEN_MAX, WHOLE},
    {236, SIM_PCIE_WIDTH_MAX, WHOLE},
    {237, SIM_PCIE_GEN, WHOLE},
    {238, SIM_PCIE_WIDTH, WHOLE},
    {240, SIM_VIOLATION_POWER, WHOLE},
    {241, SIM_VIOLATION_THERMAL, WHOLE},
    {242, SIM_VIOLATION_SYNC_BOOST, WHOLE},
    {243, SIM_VIOLATION_BOARD, WHOLE},
    {244, SIM_VIOLATION_LOW_UTIL, WHOLE},
    {245, SIM_VIOLATION_RELIABILITY, WHOLE},
    {246, SIM_VIOLATION_APP_CLOCKS, WHOLE},
    {247, SIM_VIOLATION_BASE_CLOCKS, WHOLE},
    {300, SIM_ECC_MODE, WHOLE},
    {301, SIM_ECC_PENDING, WHOLE},
    {310, SIM_ECC_SBE_VOL, WHOLE},
    {311, SIM_ECC_DBE_VOL, WHOLE},
    {312, SIM_ECC_SBE_AGG, WHOLE},
    {313, SIM_ECC_DBE_AGG, WHOLE},
    {346, SIM_SRAM_THRESHOLD, WHOLE},
    {385, SIM_REMAP_MAX, WHOLE},
    {386, SIM_REMAP_HIGH, WHOLE},
    {387, SIM_REMAP_PARTIAL, WHOLE},
    {388, SIM_REMAP_LOW, WHOLE},
    {389, SIM_REMAP_NONE, WHOLE},
    {390, SIM_RETIRED_SBE, WHOLE},
    {391, SIM_RETIRED_DBE, WHOLE},
    {392, SIM_RETIRED_PENDING, WHOLE},
    {393, SIM_REMAPPED_UNC, WHOLE},
    {394, SIM_REMAPPED_COR, WHOLE},
    {395, SIM_REMAP_FAILURE, WHOLE},
    {396, SIM_REMAP_PENDING, WHOLE},
    {409, SIM_NVLINK_CRC_FLIT, WHOLE},
    {419, SIM_NVLINK_CRC_DATA, WHOLE},
    {429, SIM_NVLINK_REPLAY, WHOLE},
    {439, SIM_NVLINK_RECOVERY, WHOLE},
    {500, SIM_VIRTUALIZATION, WHOLE},
    {843, SIM_NVLINK_TX, LINK_RATE},
    {897, SIM_NVLINK_RX, LINK_RATE},
    {1002, SIM_GPM_SM, RATIO},
    {1003, SIM_GPM_OCCUPANCY, RATIO},
    {1004, SIM_GPM_TENSOR, RATIO},
    {1005, SIM_GPM_DRAM, RATIO},
    {1006, SIM_GPM_FP64, RATIO},
    {1007, SIM_GPM_FP32, RATIO},
    {1008, SIM_GPM_FP16, RATIO},
    {1009, SIM_PCIE_TX, BYTES_RATE},
    {1010, SIM_PCIE_RX, BYTES_RATE},
    {1011, SIM_NVLINK_TX, KIB_RATE},
    {1012, SIM_NVLINK_RX, KIB_RATE},
    {1013, SIM_GPM_IMMA, RATIO},
    {1014, SIM_GPM_HMMA, RATIO},
    {1015, SIM_GPM_DFMA, RATIO},
    {1016, SIM_GPM_INTEGER, RATIO},
    {1420, SIM_VIOLATION_POWER, WHOLE},
    {1421, SIM_VIOLATION_SYNC_BOOST, WHOLE},
    {1422, SIM_SLOWDOWN_SW_THERMAL, WHOLE},
    {1423, SIM_SLOWDOWN_HW_THERMAL, WHOLE},
    {1424, SIM_SLOWDOWN_POWER_BRAKE, WHOLE},
    {1501, SIM_PCIE_CORRECTABLE, WHOLE},
    {1523, SIM_RECOVERY_ACTION, WHOLE},
};

bool field_is_profiling(uint16_t field)
{
    return (field >= 1001 && field <= 1096) || field == 1532 || field == 1533;
}

static void set_number(struct reading *out, int64_t i64, double f64)
{
    out->blank = -1;
    out->i64 = i64;
    out->f64 = f64;
}

static void set_text(struct reading *out, const char *text)
{
    out->blank = text[0] ? -1 : 2;
    (void)snprintf(out->text, sizeof(out->text), "%s", text);
}

// What DCGM makes of an nvmlReturn_t.
static void set_failure(struct reading *out, int code)
{
    out->blank = code == 3 ? 2 : code == 4 ? 3 : code == 6 ? 1 : 0;
}

// --- Signals ---

static int64_t whole(sim_wide micro)
{
    return (int64_t)(micro / 1000000);
}

static void read_rate(const struct sim_node *n, const struct automatic *a, uint32_t gpu,
                      int64_t before, int64_t t, struct reading *out)
{
    sim_wide growth;
    int code = sim_integral(n, gpu, (enum sim_field)a->signal, before, t, &growth);
    if (code != 0) {
        set_failure(out, code);
        return;
    }
    double per_second = t > before ? (double)growth * 1e3 / (double)(t - before) : 0;
    if (a->shape == KIB_RATE)
        per_second *= 1024;
    if (a->shape == LINK_RATE)
        per_second /= 1000;
    set_number(out, (int64_t)per_second, per_second);
}

// An A100's instance counts for its share of the GPU; where the GPU has GPM, for itself.
static double share(const struct sim_node *n, const struct target *at)
{
    const struct sim_gpu *g = &n->gpus[at->gpu];
    if (at->instance == SIM_NONE || g->gpm || g->total_slices == 0)
        return 1;
    return (double)n->instances[at->instance].gi_slices / g->total_slices;
}

static void read_ratio(const struct sim_node *n, const struct target *at, enum sim_field signal,
                       int64_t before, int64_t t, struct reading *out)
{
    uint32_t gi = at->instance == SIM_NONE ? SIM_NONE : at->gi;
    sim_wide ignored;
    int code = sim_micro(n, at->gpu, signal, t, &ignored);
    if (code != 0) {
        set_failure(out, code);
        return;
    }
    double mean = sim_instance_mean(n, at->gpu, gi, signal, before, t > before ? t : before + 1);
    set_number(out, (int64_t)(mean / 100), mean / 100);
}

static void read_load(const struct sim_node *n, const struct target *at, int64_t before, int64_t t,
                      struct reading *out)
{
    uint32_t gi = at->instance == SIM_NONE ? SIM_NONE : at->gi;
    sim_wide ignored;
    if (sim_micro(n, at->gpu, SIM_GPM_SM, t, &ignored) != 0) {
        set_failure(out, 3);
        return;
    }
    int64_t to = t > before ? t : before + 1;
    double ratio = (double)sim_load_integral(n, at->gpu, gi, before, to) / 1e6 /
                   (double)(to - before) * share(n, at);
    set_number(out, (int64_t)ratio, ratio);
}

static void read_signal(const struct sim_node *n, const struct target *at,
                        const struct automatic *a, int64_t before, int64_t t, struct reading *out)
{
    sim_wide micro;
    int code = sim_micro(n, at->gpu, (enum sim_field)a->signal, t, &micro);
    if (code == 0 && a->shape == NO_MIG && sim_truth_or_zero(n, at->gpu, SIM_MIG_MODE, t))
        code = 3;
    if (code != 0) {
        set_failure(out, code);
        return;
    }
    switch (a->shape) {
    case WHOLE:
    case NO_MIG:
        set_number(out, whole(micro), (double)whole(micro));
        break;
    case MILLI:
        set_number(out, whole(micro) / 1000, (double)whole(micro) / 1000.0);
        break;
    case WHOLE_KILO:
        set_number(out, whole(micro) / 1000, (double)(whole(micro) / 1000));
        break;
    case MIB:
        set_number(out, whole(micro) >> 20, (double)(whole(micro) >> 20));
        break;
    case RATIO:
        read_ratio(n, at, (enum sim_field)a->signal, before, t, out);
        break;
    case BYTES_RATE:
    case KIB_RATE:
    case LINK_RATE:
        read_rate(n, a, at->gpu, before, t, out);
        break;
    }
}

// --- Memory, NVLink of both ways, texts, numbers ---

static void read_memory(const struct sim_node *n, const struct target *at, uint16_t field,
                        int64_t t, struct reading *out)
{
    struct sim_memory m;
    int code = at->instance == SIM_NONE ? sim_gpu_memory(n, at->gpu, t, &m)
                                        : sim_instance_memory(n, at->instance, t, &m);
    bool split = n->driver_branch >= 510; // an older driver counts the reserved part as used
    if (code != 0 || (field == 253 && !split)) {
        set_failure(out, code != 0 ? code : 3);
        return;
    }
    int64_t used = split ? m.used : m.used + m.reserved;
    int64_t usable = split ? m.total - m.reserved : m.total;
    int64_t bytes = field == 250   ? m.total
                    : field == 251 ? m.free
                    : field == 252 ? used
                                   : m.reserved;
    if (field == 254)
        set_number(out, 0, usable > 0 ? (double)used / (double)usable : 0);
    else
        set_number(out, bytes >> 20, (double)(bytes >> 20));
}

static void read_link_total(const struct sim_node *n, uint32_t gpu, int64_t before, int64_t t,
                            struct reading *out)
{
    static const struct automatic tx = {449, SIM_NVLINK_TX, LINK_RATE},
                                  rx = {449, SIM_NVLINK_RX, LINK_RATE};
    struct reading other = *out;
    read_rate(n, &tx, gpu, before, t, out);
    read_rate(n, &rx, gpu, before, t, &other);
    if (out->blank < 0 && other.blank < 0)
        set_number(out, (int64_t)(out->f64 + other.f64), 0);
}

static bool read_text(const struct sim_node *n, const struct target *at, uint16_t field,
                      struct reading *out)
{
    const struct sim_gpu *g = &n->gpus[at->gpu];
    const struct {
        uint16_t field;
        uint32_t text;
    } texts[] = {{50, g->name},          {53, g->serial},        {54, g->uuid},
                 {56, g->inforom_oem},   {57, g->bus_id},        {80, g->inforom_ecc},
                 {81, g->inforom_power}, {82, g->inforom_image}, {85, g->vbios}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].field != field)
            continue;
        set_text(out, sim_string(n, texts[i].text));
        return true;
    }
    return false;
}

static bool read_instance_text(const struct sim_node *n, const struct target *at, uint16_t field,
                               struct reading *out)
{
    const struct sim_instance *x = &n->instances[at->instance];
    const char *profile = sim_string(n, x->profile), *uuid = sim_string(n, x->uuid);
    if (field == 50 && at->entity == SIM_ENTITY_GPU_CI && x->ci_slices < x->gi_slices) {
        char text[256];
        (void)snprintf(text, sizeof(text), "%uc.%s", x->ci_slices, profile);
        set_text(out, text);
        return true;
    }
    if (field == 50)
        set_text(out, profile);
    if (field == 54)
        set_text(out, uuid);
    return field == 50 || field == 54;
}

static bool read_number(const struct sim_node *n, uint32_t gpu, uint16_t field, int64_t t,
                        struct reading *out)
{
    const struct sim_gpu *g = &n->gpus[gpu];
    int64_t value = 0;
    switch (field) {
    case 52:
        value = gpu;
        break;
    case 55:
        value = g->minor;
        break;
    case 58:
        value = g->pci_device_id;
        break;
    case 59:
        value = g->pci_subsystem_id;
        break;
    case 63:
        value = (int64_t)g->cc_major << 16 | g->cc_minor;
        break;
    case 526:
        if (sim_truth(n, gpu, SIM_LICENSE_SUPPORTED, t, &value) != 0)
            return false;
        value = value ? sim_truth_or_zero(n, gpu, SIM_LICENSE_STATE, t) > 0 : 0;
        break;
    default:
        return false;
    }
    set_number(out, value, (double)value);
    return true;
}

static const struct automatic *automatic_find(uint16_t field)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].field == field)
            return &table[i];
    }
    return NULL;
}

static void read_gpu(const struct sim_node *n, const struct target *at, uint16_t field,
                     int64_t before, int64_t t, struct reading *out)
{
    if (at->instance != SIM_NONE && read_instance_text(n, at, field, out))
        return;
    if (read_text(n, at, field, out))
        return;
    if (sim_gpu_return(n, at->gpu, SIM_ALWAYS, t) != 0) {
        out->blank = 0;
        return;
    }
    const struct automatic *a = automatic_find(field);
    if (read_number(n, at->gpu, field, t, out))
        return;
    if (field >= 250 && field <= 254)
        read_memory(n, at, field, t, out);
    else if (field == 1001)
        read_load(n, at, before, t, out);
    else if (field == 449)
        read_link_total(n, at->gpu, before, t, out);
    else if (a)
        read_signal(n, at, a, before, t, out);
}

void automatic_read(const struct sim_node *n, const struct target *at, uint16_t field,
                    int64_t before, int64_t t, struct reading *out)
{
    out->blank = 2;
    if (field == 1)
        set_text(out, n->driver_version);
    else if (field == 2)
        set_text(out, n->nvml_version);
    else if (at->gpu != SIM_NONE && at->entity != SIM_ENTITY_LINK)
        read_gpu(n, at, field, before, t, out);
}
