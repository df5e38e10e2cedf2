// SPDX-License-Identifier: Apache-2.0
// The Kubernetes client for the integration tests, until SIGTERM; what it tells are lines of
// tab-separated fields.
//   kube_probe discover PROMETHEUS_YAML [--root DIR] [--node NAME] [--job NAME] [--quiet]:
//       kubernetes_sd_configs of that job, else of the first
//   kube_probe watch RESOURCE [--option value ...]: one watch
// SIGUSR1: a line of statistics.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/discover_kube.h"
#include "base/clock.h"
#include "base/num.h"
#include "kube/api.h"

#define SECTIONS_MAX 8

struct probe {
    struct loop *loop;
    struct http_client *client;
    struct loop_signal *end, *look;
    struct kube_api *api;
    struct kube_watch *watch;
    struct discover_kube *discover[SECTIONS_MAX];
    size_t discover_count;
    bool quiet; // objects and groups are counted only
    uint64_t counted;
};

// --- One watch ---

static int on_object(void *user, struct sv key, const struct json_node *object)
{
    struct probe *p = user;
    struct sv version = kube_text(object, "metadata", "resourceVersion");
    p->counted++;
    if (!p->quiet)
        printf("object\t%.*s\t%.*s\n", SV_FMT(key), SV_FMT(version));
    return 0;
}

static void on_deleted(void *user, struct sv key)
{
    struct probe *p = user;
    p->counted++;
    if (!p->quiet)
        printf("deleted\t%.*s\n", SV_FMT(key));
}

static void on_ready(void *user)
{
    const struct probe *p = user;
    printf("ready\t%" PRIu64 "\n", p->counted);
}

static void on_problem(void *user, const char *text)
{
    (void)user;
    printf("problem\t%s\n", text ? text : "");
}

static int parse_resource(const char *name, struct kube_resource *out)
{
    const struct kube_resource known[] = {KUBE_PODS,      KUBE_NODES,          KUBE_SERVICES,
                                          KUBE_ENDPOINTS, KUBE_ENDPOINTSLICES, KUBE_INGRESSES};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strcmp(known[i].plural, name) == 0) {
            *out = known[i];
            return 0;
        }
    }
    return -EINVAL;
}

struct watch_options {
    struct kube_api_config api;
    struct kube_watch_config watch;
};

static int set_text(struct watch_options *o, const char *name, const char *value)
{
    const struct {
        const char *name, **place;
    } texts[] = {
        {"--server", &o->api.server},
        {"--kubeconfig", &o->api.kubeconfig_file},
        {"--root", &o->api.root},
        {"--ca", &o->api.tls.ca_file},
        {"--token", &o->api.credentials},
        {"--token-file", &o->api.credentials_file},
        {"--namespace", &o->watch.namespace_name},
        {"--label", &o->watch.label_selector},
        {"--field", &o->watch.field_selector},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (strcmp(texts[i].name, name) == 0) {
            *texts[i].place = value;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_number(struct watch_options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *place;
    } numbers[] = {
        {"--watch-ms", &o->watch.watch_ns},
        {"--silence-ms", &o->watch.silence_ns},
        {"--backoff-least-ms", &o->watch.backoff_least_ns},
        {"--backoff-most-ms", &o->watch.backoff_most_ns},
    };
    uint64_t n;
    if (num_parse_u64(sv_from(value), 1, UINT32_MAX, &n) < 0)
        return -EINVAL;
    if (strcmp(name, "--page") == 0) {
        o->watch.page = (unsigned)n;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (strcmp(numbers[i].name, name) == 0) {
            *numbers[i].place = n * NS_PER_MS;
            return 0;
        }
    }
    return -EINVAL;
}

static int start_watch(struct probe *p, char **argv)
{
    struct error err = ERROR_INIT;
    struct watch_options o = {.watch = {.object = on_object,
                                        .deleted = on_deleted,
                                        .synced = on_ready,
                                        .problem = on_problem,
                                        .user = p}};
    if (!argv[0] || parse_resource(argv[0], &o.watch.resource) < 0)
        return -EINVAL;
    for (argv++; *argv; argv++) {
        if (strcmp(*argv, "--quiet") == 0) {
            p->quiet = true;
            continue;
        }
        if (!argv[1] ||
            (set_text(&o, argv[0], argv[1]) < 0 && set_number(&o, argv[0], argv[1]) < 0))
            return -EINVAL;
        argv++;
    }
    int r = kube_api_new(p->loop, p->client, &o.api, &p->api, &err);
    if (r < 0) {
        char text[sizeof(err.text) + sizeof(err.file) + 32];
        printf("refused\t%s\n", error_text(&err, text, sizeof(text)));
        return r;
    }
    printf("server\t%s\t%s\n", kube_api_server(p->api),
           kube_api_namespace(p->api) ? kube_api_namespace(p->api) : "");
    return kube_watch_new(p->api, &o.watch, &p->watch);
}

// --- Discovery ---

static void print_labels(const struct labels *l, struct buf *out)
{
    buf_add_char(out, '{');
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        json_add_string(out, l->items[i].name);
        buf_add_char(out, ':');
        json_add_string(out, l->items[i].value);
    }
    buf_add_char(out, '}');
}

static void on_group(void *user, const char *source, struct target_group *group)
{
    struct probe *p = user;
    p->counted++;
    if (!p->quiet && !group) {
        printf("gone\t%s\n", source);
    } else if (!p->quiet) {
        struct buf text = BUF_INIT(1u << 28);
        buf_add_char(&text, '[');
        for (size_t i = 0; i < group->count; i++) {
            if (i > 0)
                buf_add_char(&text, ',');
            print_labels(&group->targets[i], &text);
        }
        buf_add_char(&text, ']');
        printf("group\t%s\t%s\n", source, buf_cstr(&text));
        buf_deinit(&text);
    }
    target_group_unref(group);
}

static int start_job(struct probe *p, const struct prom_config *config, const char *name,
                     const char *node)
{
    const struct prom_job *job = &config->jobs[0];
    const struct discover_events events = {on_group, on_ready, on_problem, p};
    int r = 0;
    for (size_t i = 0; name && i < config->job_count; i++)
        if (strcmp(config->jobs[i].name, name) == 0)
            job = &config->jobs[i];
    for (size_t i = 0; r == 0 && i < job->kube_sd_count && i < SECTIONS_MAX; i++) {
        struct error err = ERROR_INIT;
        r = discover_kube_new(p->loop, p->client, &job->kube_sds[i], node, &events, &p->discover[i],
                              &err);
        if (r < 0) {
            char text[sizeof(err.text) + sizeof(err.file) + 32];
            printf("refused\t%s\n", error_text(&err, text, sizeof(text)));
        } else {
            p->discover_count++;
        }
    }
    return r;
}

static int start_discovery(struct probe *p, char **argv, struct prom_config **config)
{
    struct buf errors = BUF_INIT(1u << 20);
    const char *node = NULL, *job = NULL, *file = argv[0];
    if (!file)
        return -EINVAL;
    for (argv++; *argv; argv++) {
        if (strcmp(*argv, "--quiet") == 0)
            p->quiet = true;
        else if (strcmp(*argv, "--root") == 0 && argv[1])
            discover_kube_set_root(*++argv);
        else if (strcmp(*argv, "--node") == 0 && argv[1])
            node = *++argv;
        else if (strcmp(*argv, "--job") == 0 && argv[1])
            job = *++argv;
        else
            return -EINVAL;
    }
    int r = prom_config_load(file, config, &errors);
    if (r < 0)
        fprintf(stderr, "%s", buf_cstr(&errors));
    buf_deinit(&errors);
    return r == 0 ? start_job(p, *config, job, node) : r;
}

// --- The whole ---

static void on_end(void *user, int signo)
{
    struct probe *p = user;
    (void)signo;
    loop_stop(p->loop, 0);
}

static void on_look(void *user, int signo)
{
    struct probe *p = user;
    (void)signo;
    if (p->watch) {
        struct kube_watch_stats s;
        kube_watch_get_stats(p->watch, &s);
        printf("stats\t{\"objects\":%zu,\"lists\":%" PRIu64 ",\"pages\":%" PRIu64
               ",\"watches\":%" PRIu64 ",\"events\":%" PRIu64 ",\"failures\":%" PRIu64
               ",\"skipped\":%" PRIu64 ",\"counted\":%" PRIu64 "}\n",
               s.objects, s.lists, s.pages, s.watches, s.events, s.failures, s.skipped, p->counted);
    }
    for (size_t i = 0; i < p->discover_count; i++) {
        struct discover_kube_stats s;
        discover_kube_get_stats(p->discover[i], &s);
        printf("stats\t{\"objects\":%zu,\"record_bytes\":%zu,\"lists\":%" PRIu64
               ",\"watches\":%" PRIu64 ",\"events\":%" PRIu64 ",\"failures\":%" PRIu64
               ",\"skipped\":%" PRIu64 ",\"counted\":%" PRIu64 "}\n",
               s.objects, s.record_bytes, s.lists, s.watches, s.events, s.failures, s.skipped,
               p->counted);
    }
}

static int run(struct probe *p, char **argv)
{
    struct error err = ERROR_INIT;
    struct prom_config *config = NULL;
    int r = loop_signal_new(p->loop, SIGTERM, on_end, p, &p->end);
    if (r == 0)
        r = loop_signal_new(p->loop, SIGUSR1, on_look, p, &p->look);
    if (r == 0)
        r = http_client_new(p->loop, &p->client, &err);
    if (r == 0)
        r = strcmp(argv[1], "watch") == 0 ? start_watch(p, argv + 2)
                                          : start_discovery(p, argv + 2, &config);
    int status = r < 0 ? 3 : loop_run(p->loop);
    if (r < 0)
        fprintf(stderr, "%s %s\n", err.text, strerror(-r));
    for (size_t i = 0; i < p->discover_count; i++)
        discover_kube_free(p->discover[i]);
    kube_watch_free(p->watch);
    kube_api_free(p->api);
    if (config)
        prom_config_unref(config);
    http_client_free(p->client);
    loop_signal_free(p->end);
    loop_signal_free(p->look);
    return status;
}

int main(int argc, char **argv)
{
    struct probe p = {0};
    setvbuf(stdout, NULL, _IOLBF, 1u << 16);
    if (argc < 3 || loop_new(&p.loop) < 0) {
        fprintf(stderr, "bad arguments\n");
        return 2;
    }
    int status = run(&p, argv);
    loop_free(p.loop);
    return status;
}
