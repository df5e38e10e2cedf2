// SPDX-License-Identifier: Apache-2.0
// Configuration, processes, and the addresses to listen on.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"
#include "exporter/admin.h"
#include "exporter/doctor_internal.h"
#include "exporter/doctor_read.h"
#include "io/http_server.h"
#include "io/http_syntax.h"

#define TABLE_MOST (4 << 20) // bytes of /proc/net/tcp: 27,000 connections

// --- Configuration ---

void doctor_judge_configuration(struct doctor *d)
{
    static const struct doctor_fault mistaken = {
        DOCTOR_FAIL, "the exporter does not start",
        "correct it; docs/metrics.md has every field's name"};
    static const struct doctor_fault inert = {DOCTOR_WARN, "what these flags ask for",
                                              "leave them out, or see docs/compat.md"};
    if (!d->config)
        doctor_fault(d, "counters", &mistaken, "%s", d->config_error);
    else
        doctor_ok(d, "counters", "%zu rows of %s", d->config->counters.count,
                  d->config->counters_file);
    struct buf names = BUF_INIT(1024);
    for (size_t i = 0; i < d->options->unavailable_count; i++)
        buf_add_fmt(&names, "%s--%s", i ? " " : "", d->options->unavailable[i]);
    if (d->options->unavailable_count > 0)
        doctor_fault(d, "flags", &inert, "accepted without effect: %s",
                     names.error ? "many" : buf_cstr(&names));
    else if (d->options->ignored_word)
        doctor_fault(d, "flags", &inert, "from the word '%.64s' on the command line is ignored",
                     d->options->ignored_word);
    else
        doctor_ok(d, "flags", "all have an effect");
    buf_deinit(&names);
}

// --- Processes ---

struct tally {
    size_t processes, of_pods, unreadable;
};

static struct tally count_processes(const char *proc, struct process_map *m)
{
    struct tally t = {0};
    DIR *folder = opendir(proc);
    uint64_t now_ns = clock_mono_ns(), pid;
    for (const struct dirent *e;
         folder && t.processes < LIMIT_PROCESS_MAP && (e = readdir(folder));) {
        struct process_identity who;
        if (num_parse_u64(sv_from(e->d_name), 1, UINT32_MAX, &pid) != 0)
            continue;
        t.processes++;
        if (!process_map_find(m, (uint32_t)pid, now_ns, &who))
            break;
        t.of_pods += who.kind == PROCESS_POD;
        t.unreadable += who.kind == PROCESS_UNREADABLE;
    }
    if (folder)
        (void)closedir(folder);
    return t;
}

static const char shared[] = "busy time and memory of each container on shared GPUs: it all stays "
                             "in podgpu_gpu_unattributed_*";

static void judge_view(struct doctor *d, const struct process_map *m)
{
    static const struct doctor_fault fault = {DOCTOR_WARN, shared, "hostPID: true"};
    const char *proc = d->options->flags.proc_path;
    switch (process_map_view(m)) {
    case PROCESS_VIEW_PRIVATE:
        doctor_fault(d, "process ids", &fault, "%s has this container's processes alone", proc);
        return;
    case PROCESS_VIEW_HOST:
    case PROCESS_VIEW_UNKNOWN:
        doctor_ok(d, "process ids", "%s: view %s", proc, process_view_text(process_map_view(m)));
        return;
    }
}

static void judge_cgroups(struct doctor *d, struct process_map *m)
{
    static const struct doctor_fault fault = {
        DOCTOR_WARN, shared,
        "see a container's /proc/PID/cgroup on the node; report its shape, if it is of Kubernetes"};
    if (process_map_view(m) == PROCESS_VIEW_PRIVATE) {
        doctor_ok(d, "cgroups", "not to be seen");
        return;
    }
    struct tally t = count_processes(d->options->flags.proc_path, m);
    bool pods = d->rows && d->rows->count > 0;
    if (t.processes == 0 || t.unreadable == t.processes || (t.of_pods == 0 && pods))
        doctor_fault(d, "cgroups", &fault, "%zu processes, %zu unreadable, of a pod none",
                     t.processes, t.unreadable);
    else
        doctor_ok(d, "cgroups", "%zu of %zu processes belong to pods", t.of_pods, t.processes);
}

void doctor_judge_processes(struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    struct process_map *m = NULL;
    bool wanted =
        f->kubernetes && f->proc_path[0] && d->options->podgpu_families != PODGPU_FAMILIES_NONE;
    if (!wanted || process_map_new(f->proc_path, &m) < 0) {
        doctor_ok(d, "process ids", "not asked for");
        doctor_ok(d, "cgroups", "not asked for");
        return;
    }
    judge_view(d, m);
    judge_cgroups(d, m);
    process_map_free(m);
}

// --- Addresses ---

static void handle(void *user, struct http_request *request)
{
    (void)user;
    http_reply_text(request, 503, SV("a doctor is looking\n"), NULL, 0);
}

static int refuse(void *user, enum admin_command command, struct error *err)
{
    (void)user;
    (void)command;
    return error_set(err, -EBUSY, "a doctor is looking");
}

static void find_listeners(struct doctor_listeners *l, unsigned port)
{
    static const char *const files[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    *l = (struct doctor_listeners){.count = 0};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct buf table = BUF_INIT(TABLE_MOST);
        if (file_read(files[i], &table, NULL) == 0)
            doctor_read_listeners(buf_sv(&table), port, l);
        buf_deinit(&table);
    }
}

static bool has_one(const struct doctor_listeners *l, const char *pid)
{
    char path[64], target[64], text[64];
    (void)snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
    DIR *folder = opendir(path);
    bool found = false;
    for (const struct dirent *e; folder && !found && (e = readdir(folder));) {
        ssize_t len = readlinkat(dirfd(folder), e->d_name, target, sizeof(target));
        for (size_t i = 0; i < l->count && len > 0; i++) {
            (void)snprintf(text, sizeof(text), "socket:[%llu]", (unsigned long long)l->inodes[i]);
            found = found || sv_equals((struct sv){target, (size_t)len}, sv_from(text));
        }
    }
    if (folder)
        (void)closedir(folder);
    return found;
}

static bool is_an_exporter(const char *pid)
{
    char path[64];
    struct buf comm = BUF_INIT(64);
    (void)snprintf(path, sizeof(path), "/proc/%.16s/comm", pid);
    bool named =
        file_read(path, &comm, NULL) == 0 && sv_equals(buf_sv(&comm), SV("podgpu-exporter\n"));
    buf_deinit(&comm);
    return named;
}

// The exporter that listens there: `kubectl exec` finds its own at work. 0: it is somebody else.
static uint32_t exporter_at(unsigned port)
{
    struct doctor_listeners listeners;
    uint64_t pid;
    uint32_t found = 0;
    find_listeners(&listeners, port);
    DIR *folder = listeners.count > 0 ? opendir("/proc") : NULL;
    for (const struct dirent *e; folder && !found && (e = readdir(folder));)
        if (num_parse_u64(sv_from(e->d_name), 1, UINT32_MAX, &pid) == 0 &&
            is_an_exporter(e->d_name) && has_one(&listeners, e->d_name))
            found = (uint32_t)pid;
    if (folder)
        (void)closedir(folder);
    return found;
}

static void judge_bound(struct doctor *d, const char *what, const char *address, int r,
                        const struct error *err)
{
    static const struct doctor_fault fault = {DOCTOR_FAIL, "the exporter does not start",
                                              "end what listens there, or give another address"};
    struct http_address at;
    bool known = r == -EADDRINUSE && http_address_parse(address, &at, NULL) == 0;
    uint32_t pid = known ? exporter_at(at.port) : 0;
    if (r == 0)
        doctor_ok(d, what, "%s can be listened on", address);
    else if (pid)
        doctor_ok(d, what, "%s is taken by the podgpu-exporter that runs here, process %u", address,
                  pid);
    else
        doctor_fault(d, what, &fault, "%s", err->text);
}

static void judge_web_config(struct doctor *d)
{
    static const struct doctor_fault fault = {DOCTOR_FAIL, "the exporter does not start",
                                              "correct the file; it is Prometheus' web config"};
    const char *file = d->options->flags.web_config_file;
    struct http_server *server = NULL;
    struct error err = ERROR_INIT;
    const struct http_server_config config = {
        .address = "127.0.0.1:0", .web_config_file = file, .handle = handle};
    if (file[0] == '\0') {
        doctor_ok(d, "web config", "not asked for: plain HTTP without passwords");
        return;
    }
    char text[1024];
    if (http_server_new(d->loop, &config, &server, &err) < 0)
        doctor_fault(d, "web config", &fault, "%s", error_text(&err, text, sizeof(text)));
    else
        doctor_ok(d, "web config", "%s", file);
    http_server_free(server);
}

void doctor_judge_http(struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    struct error err = ERROR_INIT;
    struct http_server *server = NULL;
    struct admin *admin = NULL;
    judge_web_config(d);
    const struct http_server_config http = {.address = f->address, .handle = handle};
    if (f->systemd_socket)
        doctor_ok(d, "address", "systemd's sockets");
    else
        judge_bound(d, "address", f->address, http_server_new(d->loop, &http, &server, &err), &err);
    http_server_free(server);
    const struct admin_config config = {f->admin_address, refuse, NULL};
    err = ERROR_INIT;
    if (f->admin_address[0] == '\0')
        doctor_ok(d, "admin address", "not asked for");
    else
        judge_bound(d, "admin address", f->admin_address, admin_new(d->loop, &config, &admin, &err),
                    &err);
    admin_free(admin);
}
