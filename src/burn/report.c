// SPDX-License-Identifier: Apache-2.0
#include "burn/record.h"

#include <time.h>

#include "base/clock.h"
#include "metrics/text.h"

static const char *phase_name(const struct burn_record *r)
{
    switch (r->state) {
    case BURN_STARTING:
        return "start";
    case BURN_RUNNING:
        return r->on ? "on" : "off";
    case BURN_ENDED:
        return "end";
    }
    return "";
}

static const char *rate_unit(enum burn_kind kind)
{
    if (kind >= BURN_DRAM)
        return "GB/s";
    return kind == BURN_INT32 ? "Top/s" : "Tflop/s";
}

// With two decimals, rounded down: rates of an hour ago are not compared to the last digit.
static void add_rate(struct buf *out, const struct burn_record *r)
{
    uint64_t unit = r->kind >= BURN_DRAM ? UINT64_C(1000000000) : UINT64_C(1000000000000);
    text_add_fixed(out, r->operations_per_s / (unit / 100), 2);
    buf_add_fmt(out, " %s", rate_unit(r->kind));
}

void burn_report_text(struct buf *out, const struct burn_moment *now, const struct burn_record *r)
{
    text_add_fixed(out, now->elapsed_ns / (100 * NS_PER_MS), 1);
    buf_add_fmt(out, " s  GPU %u", r->gpu);
    if (r->process > 0)
        buf_add_fmt(out, ".%u", r->process);
    buf_add_fmt(out, "  %-5s  duty ", phase_name(r));
    text_add_fixed(out, r->duty_ppm / (BURN_PPM / 1000), 1);
    buf_add_str(out, " %  ");
    add_rate(out, r);
    buf_add_fmt(out, "  memory %llu MiB  errors %llu\n",
                (unsigned long long)(r->memory_bytes >> 20), (unsigned long long)r->mismatches);
}

static void add_wall_time(struct buf *out, uint64_t wall_ns)
{
    char text[32];
    struct tm parts;
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    if (!gmtime_r(&seconds, &parts))
        return;
    size_t len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    buf_add(out, text, len);
    buf_add_fmt(out, ".%03uZ", (unsigned)(wall_ns / NS_PER_MS % 1000));
}

// Names come from a driver: what is no text becomes a question mark.
static void add_json_text(struct buf *out, const char *key, const char *value)
{
    struct sv s = sv_from(value);
    buf_add_fmt(out, ",\"%s\":\"", key);
    while (s.len > 0) {
        size_t len = sv_utf8_length(s);
        char c = s.ptr[0];
        if (c == '"' || c == '\\')
            buf_add_char(out, '\\');
        if (len == 0 || (unsigned char)c < ' ')
            buf_add_char(out, '?');
        else
            buf_add(out, s.ptr, len);
        s = sv_sub(s, len ? len : 1, s.len);
    }
    buf_add_char(out, '"');
}

static void add_json_u64(struct buf *out, const char *key, uint64_t value)
{
    buf_add_fmt(out, ",\"%s\":", key);
    buf_add_u64(out, value);
}

static void add_json_fixed(struct buf *out, const char *key, uint64_t units, unsigned decimals)
{
    buf_add_fmt(out, ",\"%s\":", key);
    text_add_fixed(out, units, decimals);
}

void burn_report_json(struct buf *out, const struct burn_moment *now, const struct burn_record *r)
{
    buf_add_str(out, "{\"time\":\"");
    add_wall_time(out, now->wall_ns);
    buf_add_char(out, '"');
    add_json_fixed(out, "elapsed_seconds", now->elapsed_ns, 9);
    add_json_u64(out, "gpu", r->gpu);
    add_json_text(out, "UUID", r->uuid);
    add_json_text(out, "model", r->model);
    add_json_u64(out, "process", r->process);
    add_json_u64(out, "pid", (uint64_t)r->pid);
    add_json_text(out, "kind", burn_kind_name(r->kind));
    add_json_text(out, "phase", phase_name(r));
    add_json_fixed(out, "duty_ratio", r->duty_ppm, 6);
    add_json_fixed(out, "scheduled_seconds", r->scheduled_ns, 9);
    add_json_fixed(out, "busy_seconds", r->busy_ns, 9);
    add_json_u64(out, "operations", r->operations);
    add_json_u64(out, "operations_per_second", r->operations_per_s);
    add_json_u64(out, "memory_bytes", r->memory_bytes);
    add_json_u64(out, "rounds", r->rounds);
    add_json_u64(out, "mismatches", r->mismatches);
    if (r->state == BURN_ENDED) {
        add_json_u64(out, "result", r->result);
        add_json_text(out, "error", r->error);
    }
    buf_add_str(out, "}\n");
}

void burn_report_end(struct buf *out, const struct burn_record *records, size_t count)
{
    size_t gpus = 0;
    for (size_t i = 0; i < count; i++)
        gpus += i == 0 || records[i].gpu != records[i - 1].gpu;
    buf_add_fmt(out, "Tested %zu GPUs:\n", gpus);
    bool clean = true;
    for (size_t i = 0; i < count; i++) {
        bool first = i == 0 || records[i].gpu != records[i - 1].gpu;
        clean = (first || clean) && records[i].result == BURN_CLEAN && !records[i].mismatches;
        if (i + 1 == count || records[i + 1].gpu != records[i].gpu)
            buf_add_fmt(out, "\tGPU %u: %s\n", records[i].gpu, clean ? "OK" : "FAULTY");
    }
}
