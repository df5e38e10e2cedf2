// SPDX-License-Identifier: Apache-2.0
// From the flags as given to checked types. Whatever is wrong is named by flag and variable, with
// what was found and what is expected.
#include "exporter/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "gpu/dcgm_address.h"
#include "io/http_syntax.h"

#define CALL_DEADLINE_LEAST_NS (100 * NS_PER_MS)
#define CALL_DEADLINE_MOST_NS (600 * NS_PER_S)
#define ENDED_POD_LINGER_MOST_NS (86400 * NS_PER_S)
#define ENGINE_ADDRESS_MOST 127 // of frame_state.engine

static const struct option_row *row_get(const char *name)
{
    const struct option_row *row = exporter_option_table.rows;
    while (strcmp(row->name, name) != 0)
        row++;
    return row;
}

// One of the NULL-ended words; *out its index.
static int read_choice(const char *flag, const char *found, const char *const *words,
                       const char *expected, unsigned *out, struct error *err)
{
    for (unsigned i = 0; words[i]; i++) {
        if (strcmp(found, words[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "--%s (%s): expected %s, found '%.128s'", flag,
                     row_get(flag)->env, expected, found);
}

static int read_choices(struct exporter_options *o, struct error *err)
{
    static const char *const hostname_words[] = {"hostname", "Hostname", "both", NULL};
    static const char *const shared_words[] = {"none", "last", NULL};
    static const char *const family_words[] = {"none", "core", "all", NULL};
    static const char *const id_words[] = {"uid", "device-name", NULL};
    static const char *const board_words[] = {"repeat", "once", NULL};
    static const char *const log_words[] = {"text", "json", NULL};
    static const char *const dcgm_log_words[] = {"NONE", "FATAL", "ERROR", "WARN",
                                                 "INFO", "DEBUG", "VERB",  NULL};
    const struct exporter_flags *f = &o->flags;
    unsigned host = 0, shared = 0, families = 0, id = 0, board = 0, log = 0, dcgm_log = 0;
    const struct {
        const char *flag, *found;
        const char *const *words;
        const char *expected;
        unsigned *out;
    } choices[] = {
        {"log-format", f->log_format, log_words, "text or json", &log},
        {"dcgm-log-level", f->dcgm_log_level, dcgm_log_words,
         "NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB", &dcgm_log},
        {"hostname-label", f->hostname_label, hostname_words, "hostname, Hostname or both", &host},
        {"shared-owner", f->shared_owner, shared_words, "none or last", &shared},
        {"podgpu-families", f->podgpu_families, family_words, "none, core or all", &families},
        {"kubernetes-gpu-id-type", f->gpu_id_type, id_words, "uid or device-name", &id},
        {"mig-board-fields", f->mig_board_fields, board_words, "repeat or once", &board},
    };
    for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
        int r = read_choice(choices[i].flag, choices[i].found, choices[i].words,
                            choices[i].expected, choices[i].out, err);
        if (r < 0)
            return r;
    }
    o->hostname_label = f->no_hostname ? HOSTNAME_LABEL_NONE : (enum hostname_label)host;
    o->shared_owner = (enum shared_owner)shared;
    o->podgpu_families = (enum podgpu_families)families;
    o->gpu_id_by_device_name = id == 1;
    o->mig_board_once = board == 1;
    o->log_format = log == 1 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    o->log_level = f->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    return 0;
}

// Outside Kubernetes a -r that is another machine is about GPUs that this machine's driver doesn't
// have.
static int read_source(struct exporter_options *o, struct error *err)
{
    static const char *const words[] = {"auto", "nvml", "dcgm", NULL};
    const struct exporter_flags *f = &o->flags;
    unsigned choice = 0;
    int r = read_choice("source", f->source, words, "auto, nvml or dcgm", &choice, err);
    if (r < 0)
        return r;
    o->source = (enum source_choice)choice;
    bool elsewhere = f->remote_hostengine_given && !f->kubernetes &&
                     !exporter_remote_is_loopback(sv_from(f->remote_hostengine));
    if (elsewhere && o->source == SOURCE_CHOICE_AUTO)
        o->source = SOURCE_CHOICE_DCGM;
    return 0;
}

static int read_selection(const char *flag, const char *text, struct selection *out,
                          struct error *err)
{
    struct error inner = ERROR_INIT;
    int r = selection_parse(sv_from(text), out, &inner);
    if (r < 0)
        return error_set(err, r, "--%s (%s): '%.128s': %s", flag, row_get(flag)->env, text,
                         inner.text);
    return 0;
}

static int read_selections(struct exporter_options *o, struct error *err)
{
    int r = read_selection("devices", o->flags.devices, &o->gpus, err);
    if (r == 0)
        r = read_selection("switch-devices", o->flags.switch_devices, &o->switches, err);
    if (r == 0)
        r = read_selection("cpu-devices", o->flags.cpu_devices, &o->cpus, err);
    return r;
}

// Splits Go's way (net.SplitHostPort): the host of "host:port" and "[v6]:port"; else the whole
// text.
static struct sv host_part(struct sv address)
{
    if (sv_starts_with(address, SV("["))) {
        size_t end = sv_find(address, SV("]:"));
        return end == (size_t)-1 ? address : sv_sub(address, 1, end - 1);
    }
    size_t colon = sv_find_char(address, ':');
    bool one = colon != (size_t)-1 &&
               sv_find_char(sv_sub(address, colon + 1, address.len), ':') == (size_t)-1;
    return one ? sv_sub(address, 0, colon) : address;
}

bool exporter_remote_is_loopback(struct sv remote)
{
    struct dcgm_address address;
    const char *why;
    if (dcgm_address_parse(remote, &address, &why) < 0)
        return false;
    switch (address.kind) {
    case DCGM_ADDRESS_UNIX:
        return true;
    case DCGM_ADDRESS_VSOCK:
        return address.cid == 1; // VMADDR_CID_LOCAL
    case DCGM_ADDRESS_TCP:
        break;
    }
    return http_host_is_loopback(address.host);
}

// What the pod's manifest hands over by the downward API.
static int read_variable(const char *name, char **environment, char out[256], struct error *err)
{
    struct sv value = {NULL, 0};
    size_t length = strlen(name);
    for (; environment && *environment && !value.len; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            value = sv_from(*environment + length + 1);
    }
    if (value.len >= 256)
        return error_set(err, -EINVAL, "%s: '%.64s...' is longer than 255 bytes", name, value.ptr);
    sv_copy(out, 256, value);
    return 0;
}

static int read_variables(struct exporter_options *o, char **environment, struct error *err)
{
    int r = read_variable("NODE_NAME", environment, o->node_name, err);
    if (r == 0)
        r = read_variable("POD_NAMESPACE", environment, o->own_namespace, err);
    if (r == 0)
        r = read_variable("POD_NAME", environment, o->own_pod, err);
    return r;
}

// An engine on another machine speaks of that machine's GPUs.
static bool read_remote_host(struct exporter_options *o)
{
    static const char *const schemes[] = {"tcp://", "vsock://"};
    const struct exporter_flags *f = &o->flags;
    struct sv remote = sv_trim(sv_from(f->remote_hostengine), " \t");
    if (!f->remote_hostengine_given || f->kubernetes || o->source == SOURCE_CHOICE_NVML ||
        exporter_remote_is_loopback(remote))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (sv_starts_with(remote, sv_from(schemes[i])))
            remote = sv_sub(remote, strlen(schemes[i]), remote.len);
    sv_copy(o->hostname, sizeof(o->hostname), host_part(remote));
    return true;
}

static int read_hostname(struct exporter_options *o, struct error *err)
{
    if (o->flags.no_hostname || read_remote_host(o))
        return 0;
    sv_copy(o->hostname, sizeof(o->hostname), sv_from(o->node_name));
    if (!o->hostname[0] && gethostname(o->hostname, sizeof(o->hostname) - 1) < 0)
        return error_set(
            err, -EINVAL,
            "cannot read this machine's host name: set NODE_NAME, or use --no-hostname");
    return 0;
}

// It becomes part of a field selector, whose syntax it must not change.
static int check_node_name(const struct exporter_options *o, struct error *err)
{
    if (!exporter_wants_pod_metadata(o) && !o->flags.enable_dra)
        return 0;
    for (const char *c = o->node_name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              *c == '-' || *c == '.' || *c == '_'))
            return error_set(err, -EINVAL,
                             "NODE_NAME: expected the name of a Kubernetes node, found '%.128s'",
                             o->node_name);
    return 0;
}

static int read_pod_label_patterns(struct exporter_options *o, struct error *err)
{
    static const char flag[] = "kubernetes-pod-label-allowlist-regex";
    const struct option_list *list = &o->flags.pod_label_allowlist;
    if (list->count > LIMIT_POD_LABEL_PATTERNS)
        return error_set(err, -EINVAL, "--%s (%s): expected at most %d patterns, found %zu", flag,
                         row_get(flag)->env, LIMIT_POD_LABEL_PATTERNS, list->count);
    if (list->count == 0)
        return 0;
    o->pod_label_patterns = calloc(list->count, sizeof(struct regex *));
    if (!o->pod_label_patterns)
        return -ENOMEM;
    for (size_t i = 0; i < list->count; i++) {
        struct error inner = ERROR_INIT;
        int r = regex_new(sv_from(list->items[i]), REGEX_SEARCH, &o->pod_label_patterns[i], &inner);
        if (r == -ENOMEM)
            return r;
        if (r < 0)
            return error_set(err, -EINVAL, "--%s (%s): '%.128s': %s", flag, row_get(flag)->env,
                             list->items[i], r == -E2BIG ? "too large a pattern" : inner.text);
        o->pod_label_pattern_count++;
    }
    return 0;
}

// By the source's own rules: what it could not use now it could never use.
static int check_remote(const struct exporter_options *o, struct error *err)
{
    static const char flag[] = "remote-hostengine-info";
    static const char expected[] =
        "expected HOST:PORT, [IPv6]:PORT, tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT";
    struct sv remote = sv_from(o->flags.remote_hostengine);
    struct dcgm_address address;
    const char *why;
    if (remote.len > ENGINE_ADDRESS_MOST)
        return error_set(err, -EINVAL, "--%s (%s): %s of at most %d bytes, found %zu", flag,
                         row_get(flag)->env, expected, ENGINE_ADDRESS_MOST, remote.len);
    int r = dcgm_address_parse(remote, &address, &why);
    if (r < 0)
        return error_set(err, r, "--%s (%s): %s, found '%.128s': %s", flag, row_get(flag)->env,
                         expected, remote.ptr, why);
    return 0;
}

static int check_numbers(struct exporter_options *o, struct error *err)
{
    struct exporter_flags *f = &o->flags;
    if (f->call_deadline_ns < CALL_DEADLINE_LEAST_NS || f->call_deadline_ns > CALL_DEADLINE_MOST_NS)
        return error_set(
            err, -EINVAL,
            "--call-deadline (PODGPU_EXPORTER_CALL_DEADLINE): expected 100ms to 10m, found "
            "%llu ms",
            (unsigned long long)(f->call_deadline_ns / NS_PER_MS));
    if (f->ended_pod_linger_ns > ENDED_POD_LINGER_MOST_NS)
        return error_set(
            err, -EINVAL,
            "--ended-pod-linger (PODGPU_EXPORTER_ENDED_POD_LINGER): expected at most 24h, found "
            "%llu s",
            (unsigned long long)(f->ended_pod_linger_ns / NS_PER_S));
    if (f->collect_interval_ms < COLLECT_INTERVAL_LEAST_MS) {
        f->collect_interval_ms = COLLECT_INTERVAL_LEAST_MS;
        o->collect_interval_raised = true;
    }
    return 0;
}

// Nothing has an owner without --kubernetes, and so no pod.
static bool is_about_pods(const struct option_row *row)
{
    return row->offset == offsetof(struct exporter_flags, pod_labels) ||
           row->offset == offsetof(struct exporter_flags, pod_uid) ||
           row->offset == offsetof(struct exporter_flags, enable_dra) ||
           row->offset == offsetof(struct exporter_flags, pod_owners);
}

static bool is_about_dcgm(const struct option_row *row)
{
    return row->offset == offsetof(struct exporter_flags, remote_hostengine) ||
           row->offset == offsetof(struct exporter_flags, dcgm_library) ||
           row->offset == offsetof(struct exporter_flags, enable_dcgm_log);
}

static void list_unavailable(struct exporter_options *o)
{
    const struct option_table *table = &exporter_option_table;
    for (size_t i = 0; i < table->count && o->unavailable_count < ARRAY_SIZE(o->unavailable); i++) {
        const struct option_row *row = &table->rows[i];
        bool remote = row->offset == offsetof(struct exporter_flags, remote_hostengine);
        bool asked = remote ? o->flags.remote_hostengine_given : !option_is_default(row, &o->flags);
        bool no_pods = !o->flags.kubernetes && is_about_pods(row);
        bool no_dcgm = o->source == SOURCE_CHOICE_NVML && is_about_dcgm(row);
        if ((row->inert || no_pods || no_dcgm) && asked)
            o->unavailable[o->unavailable_count++] = row->name;
    }
}

static int check(struct exporter_options *o, char **environment, struct error *err)
{
    int r = read_choices(o, err);
    if (r == 0)
        r = read_selections(o, err);
    if (r == 0)
        r = read_source(o, err);
    if (r == 0)
        r = check_remote(o, err);
    if (r == 0)
        r = check_numbers(o, err);
    if (r == 0)
        r = read_variables(o, environment, err);
    if (r == 0)
        r = read_hostname(o, err);
    if (r == 0)
        r = check_node_name(o, err);
    if (r == 0)
        r = read_pod_label_patterns(o, err);
    return r;
}

int exporter_options_parse(int argc, char **argv, char **environment, struct exporter_options *out,
                           struct error *err)
{
    int first = argc;
    *out = (struct exporter_options){0};
    int r = option_parse(&exporter_option_table, argc, argv, environment, &out->flags, &first, err);
    if (r)
        return r;
    out->ignored_word = first < argc ? argv[first] : NULL;
    r = check(out, environment, err);
    if (r < 0) {
        exporter_options_deinit(out);
        return r;
    }
    list_unavailable(out);
    return 0;
}

void exporter_options_deinit(struct exporter_options *o)
{
    option_deinit(&exporter_option_table, &o->flags);
    selection_deinit(&o->gpus);
    selection_deinit(&o->switches);
    selection_deinit(&o->cpus);
    for (size_t i = 0; i < o->pod_label_pattern_count; i++)
        regex_free(o->pod_label_patterns[i]);
    free(o->pod_label_patterns);
    *o = (struct exporter_options){0};
}
