// SPDX-License-Identifier: Apache-2.0
#include "source/arguments.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "source/dcgm_log.h"

#define USAGE                                                                                      \
    "usage: podgpu-source nvml [--library PATH] [--skip INDEX[=BUS-ID]]... [--avoid "              \
    "CALL[@INDEX]]...\n"                                                                           \
    "                          [--kmsg PATH] [--kmsg-after NUMBER] [--device-dir PATH]\n"          \
    "                          [--log-format text|json] [--log-level info|debug]\n"                \
    "       podgpu-source dcgm [--library PATH] [--connect ADDRESS]... [--embed yes|no]\n"         \
    "                          [--skip INDEX]... [--avoid CALL[@INDEX]]... [--dcgm-log LEVEL]\n"   \
    "                          [--log-format text|json] [--log-level info|debug]\n"                \
    "podgpu-exporter starts it; it is of no use by hand.\n"

int source_arguments_refuse(const char *what, const char *word)
{
    (void)fprintf(stderr, "podgpu-source: %s '%s'\n" USAGE, what, word);
    return 2;
}

// One of two words; *out whether it is the second.
static bool parse_either(const char *word, const char *first, const char *second, bool *out)
{
    *out = strcmp(word, second) == 0;
    return *out || strcmp(word, first) == 0;
}

// CALL, or CALL@INDEX of the GPU that it is left alone for.
static bool parse_avoided(const char *value, struct avoided_call *out)
{
    uint64_t number = DRIVER_NO_GPU;
    struct sv word = sv_from(value);
    size_t at = sv_find_char(word, '@');
    if (at != (size_t)-1) {
        struct sv text = sv_sub(word, at + 1, word.len);
        word = sv_sub(word, 0, at);
        if (num_parse_u64(text, 0, LIMIT_GPUS - 1, &number) < 0)
            return false;
    }
    *out = (struct avoided_call){word, (uint32_t)number};
    return true;
}

static int take_avoided(const char *value, struct source_arguments *a)
{
    struct source_options *o = &a->common;
    struct avoided_call call;
    if (!parse_avoided(value, &call))
        return source_arguments_refuse("not a call of a GPU:", value);
    if (o->avoided_count == ARRAY_SIZE(o->avoided))
        return source_arguments_refuse("too many calls to avoid:", value);
    o->avoided[o->avoided_count++] = call;
    return 0;
}

// INDEX or INDEX=BUS-ID of a GPU that must not be called.
static int take_skipped(const char *value, struct source_arguments *a)
{
    struct sv word = sv_from(value);
    size_t equals = sv_find_char(word, '=');
    uint64_t index;
    if (num_parse_u64(sv_sub(word, 0, equals == (size_t)-1 ? word.len : equals), 0, LIMIT_GPUS - 1,
                      &index) < 0)
        return source_arguments_refuse("not the index of a GPU:", value);
    a->common.skipped |= UINT64_C(1) << index;
    if (equals != (size_t)-1)
        a->nvml.skipped_bus_ids[index] = value + equals + 1;
    return 0;
}

// What both sources know.
static int take_common(const char *name, const char *value, struct source_arguments *a)
{
    if (strcmp(name, "--log-format") == 0)
        return parse_either(value, "text", "json", &a->log_json)
                   ? 0
                   : source_arguments_refuse("no log format:", value);
    if (strcmp(name, "--log-level") == 0)
        return parse_either(value, "info", "debug", &a->log_debug)
                   ? 0
                   : source_arguments_refuse("no log level:", value);
    if (strcmp(name, "--avoid") == 0)
        return take_avoided(value, a);
    if (strcmp(name, "--skip") == 0)
        return take_skipped(value, a);
    if (strcmp(name, "--library") != 0)
        return source_arguments_refuse("unknown option", name);
    a->common.library = value;
    return 0;
}

static int take_nvml(const char *name, const char *value, struct source_arguments *a)
{
    if (strcmp(name, "--kmsg-after") == 0)
        return num_parse_u64(sv_from(value), 0, UINT64_MAX, &a->nvml.kmsg_after) < 0
                   ? source_arguments_refuse("not a number:", value)
                   : 0;
    if (strcmp(name, "--kmsg") == 0)
        a->nvml.kmsg_path = value;
    else if (strcmp(name, "--device-dir") == 0)
        a->nvml.device_dir = value;
    else
        return take_common(name, value, a);
    return 0;
}

static int take_dcgm(const char *name, const char *value, struct source_arguments *a)
{
    struct dcgm_engine_options *e = &a->dcgm.engine;
    if (strcmp(name, "--embed") == 0)
        return parse_either(value, "no", "yes", &e->embed)
                   ? 0
                   : source_arguments_refuse("neither yes nor no:", value);
    if (strcmp(name, "--dcgm-log") == 0) {
        a->dcgm.log_level = value;
        return dcgm_log_is_level(value) ? 0
                                        : source_arguments_refuse("no log level of DCGM:", value);
    }
    if (strcmp(name, "--connect") != 0)
        return take_common(name, value, a);
    if (e->address_count == ARRAY_SIZE(e->addresses))
        return source_arguments_refuse("too many addresses:", value);
    e->addresses[e->address_count++] = value;
    return 0;
}

int source_arguments_parse(int argc, char **argv, struct source_arguments *out)
{
    *out = (struct source_arguments){.source = FRAME_SOURCE_NVML, .nvml = {.device_dir = "/dev"}};
    const char *source = argc < 2 ? "" : argv[1];
    bool is_dcgm;
    if (!parse_either(source, "nvml", "dcgm", &is_dcgm))
        return source_arguments_refuse("unknown source", source);
    if (is_dcgm)
        out->source = FRAME_SOURCE_DCGM;
    for (int i = 2; i < argc; i += 2) {
        if (!argv[i + 1])
            return source_arguments_refuse("no value for", argv[i]);
        int status =
            is_dcgm ? take_dcgm(argv[i], argv[i + 1], out) : take_nvml(argv[i], argv[i + 1], out);
        if (status != 0)
            return status;
    }
    return 0;
}
