// SPDX-License-Identifier: Apache-2.0
// The families are frozen: dashboards and tests of other exporters read them.
#include "burn/record.h"
#include "metrics/text.h"

enum family {
    FAMILY_INFO,
    FAMILY_RUNNING,
    FAMILY_PHASE,
    FAMILY_DUTY,
    FAMILY_SCHEDULED,
    FAMILY_BUSY,
    FAMILY_OPERATIONS,
    FAMILY_ROUNDS,
    FAMILY_MISMATCHES,
    FAMILY_MEMORY,
    FAMILY_COUNT,
};

static const struct {
    struct sv name;
    enum text_type type;
    struct sv help;
} families[FAMILY_COUNT] = {
#define FAMILY(name, type, help)                                                                   \
    {                                                                                              \
        {name, sizeof(name) - 1}, type,                                                            \
        {                                                                                          \
            help, sizeof(help) - 1                                                                 \
        }                                                                                          \
    }
    [FAMILY_INFO] =
        FAMILY("podgpu_burn_info", TEXT_TYPE_INFO, "What the load on a GPU is made of; always 1."),
    [FAMILY_RUNNING] =
        FAMILY("podgpu_burn_running", TEXT_TYPE_GAUGE,
               "1 while the process makes load, 0 while it starts or once it ended."),
    [FAMILY_PHASE] =
        FAMILY("podgpu_burn_phase", TEXT_TYPE_GAUGE, "1 while the shape is above its low, else 0."),
    [FAMILY_DUTY] = FAMILY("podgpu_burn_duty_ratio", TEXT_TYPE_GAUGE,
                           "Share of the time in which work is wanted on the GPU, now."),
    [FAMILY_SCHEDULED] = FAMILY("podgpu_burn_scheduled_seconds_total", TEXT_TYPE_COUNTER,
                                "Integral of the duty that was wanted since the start."),
    [FAMILY_BUSY] = FAMILY("podgpu_burn_busy_seconds_total", TEXT_TYPE_COUNTER,
                           "Time in which work of the process was on the GPU."),
    [FAMILY_OPERATIONS] = FAMILY("podgpu_burn_operations_total", TEXT_TYPE_COUNTER,
                                 "Arithmetic done, or for kinds that move data, bytes moved."),
    [FAMILY_ROUNDS] = FAMILY("podgpu_burn_rounds_total", TEXT_TYPE_COUNTER,
                             "Rounds of results that were compared."),
    [FAMILY_MISMATCHES] = FAMILY("podgpu_burn_mismatches_total", TEXT_TYPE_COUNTER,
                                 "Results that were not what they must be."),
    [FAMILY_MEMORY] = FAMILY("podgpu_burn_memory_bytes", TEXT_TYPE_GAUGE,
                             "GPU memory that the process holds for its work."),
#undef FAMILY
};

static void add_value(struct buf *out, enum family family, const struct burn_record *r)
{
    switch (family) {
    case FAMILY_INFO:
        return buf_add_char(out, '1');
    case FAMILY_RUNNING:
        return buf_add_u64(out, r->state == BURN_RUNNING);
    case FAMILY_PHASE:
        return buf_add_u64(out, r->state == BURN_RUNNING && r->on);
    case FAMILY_DUTY:
        return text_add_fixed(out, r->state == BURN_RUNNING ? r->duty_ppm : 0, 6);
    case FAMILY_SCHEDULED:
        return text_add_fixed(out, r->scheduled_ns, 9);
    case FAMILY_BUSY:
        return text_add_fixed(out, r->busy_ns, 9);
    case FAMILY_OPERATIONS:
        return buf_add_u64(out, r->operations);
    case FAMILY_ROUNDS:
        return buf_add_u64(out, r->rounds);
    case FAMILY_MISMATCHES:
        return buf_add_u64(out, r->mismatches);
    case FAMILY_MEMORY:
        return buf_add_u64(out, r->memory_bytes);
    case FAMILY_COUNT:
        break;
    }
}

static void add_sample(struct buf *out, enum family family, const struct burn_record *r)
{
    buf_add_sv(out, families[family].name);
    buf_add_fmt(out, "{gpu=\"%u\"", r->gpu);
    text_add_label(out, "UUID", sv_from(r->uuid));
    buf_add_fmt(out, ",process=\"%u\"", r->process);
    if (family == FAMILY_INFO) {
        text_add_label(out, "kind", sv_from(burn_kind_name(r->kind)));
        text_add_label(out, "model", sv_from(r->model));
        text_add_label(out, "version", SV(PODGPU_VERSION));
    }
    buf_add_str(out, "} ");
    add_value(out, family, r);
    buf_add_char(out, '\n');
}

void burn_page(struct buf *out, const struct burn_record *records, size_t count)
{
    for (unsigned f = 0; f < FAMILY_COUNT; f++) {
        text_add_family(out, TEXT_FORMAT_PROMETHEUS, families[f].name, families[f].type,
                        families[f].help);
        for (size_t i = 0; i < count; i++)
            add_sample(out, (enum family)f, &records[i]);
    }
}
