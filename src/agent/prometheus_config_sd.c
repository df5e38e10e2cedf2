// SPDX-License-Identifier: Apache-2.0
// Where the targets of a job come from. Rules and defaults are those of Prometheus 3.0's discovery
// packages.
#include <stddef.h>

#include "agent/prometheus_config_internal.h"
#include "base/clock.h"

#define FILE_SD_REFRESH_NS (5 * 60 * NS_PER_S)
#define HTTP_SD_REFRESH_NS (60 * NS_PER_S)

static void check_refresh(struct config_reader *r, const struct yaml_node *n, uint64_t refresh_ns)
{
    if (refresh_ns == 0)
        config_problem(r, config_place(n, "refresh_interval"),
                       "refresh_interval: expected more than 0");
}

// --- static_configs ---

struct static_section {
    struct prom_static_group group;
    struct config_list targets;
};

static void read_labels(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_static_group *g = &((struct static_section *)section)->group;
    g->labels = prom_pairs_read(r, n, true, &g->label_count);
}

void prom_static_read(struct config_reader *r, const struct yaml_node *n, void *item)
{
    static const struct config_key keys[] = {
        {"targets", CONFIG_LIST, offsetof(struct static_section, targets)},
        {"labels", CONFIG_CUSTOM, 0, read_labels},
        {NULL},
    };
    struct static_section s = {.group.line = n->line};
    config_read_section(r, n, keys, &s);
    s.group.targets = s.targets.items;
    s.group.target_count = s.targets.count;
    *(struct prom_static_group *)item = s.group;
}

// --- file_sd_configs ---

bool prom_is_pattern(struct sv path)
{
    size_t star = sv_find_char(path, '*');
    return star == (size_t)-1 || sv_find_char(sv_sub(path, star, path.len), '/') == (size_t)-1;
}

// Stars may stand in the last element only, and the name says how the file is written.
static bool is_file_sd_path(struct sv path)
{
    static const char *const endings[] = {".json", ".yml", ".yaml", ".JSON", ".YML", ".YAML"};
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        if (sv_ends_with(path, sv_from(endings[i])))
            return prom_is_pattern(path);
    }
    return false;
}

void prom_file_sd_read(struct config_reader *r, const struct yaml_node *n, void *item)
{
    struct file_section {
        struct config_list files;
        uint64_t refresh_ns;
    } s = {.refresh_ns = FILE_SD_REFRESH_NS};
    static const struct config_key keys[] = {
        {"files", CONFIG_LIST, offsetof(struct file_section, files)},
        {"refresh_interval", CONFIG_DURATION, offsetof(struct file_section, refresh_ns)},
        {NULL},
    };
    config_read_section(r, n, keys, &s);
    check_refresh(r, n, s.refresh_ns);
    if (s.files.count == 0)
        config_problem(r, n, "file_sd_configs needs files");
    const struct yaml_node *path = s.files.node ? s.files.node->first : NULL;
    for (; path; path = path->next) {
        if (path->kind == YAML_SCALAR && !is_file_sd_path(path->scalar))
            config_problem(r, path,
                           "'%.64s': expected a path that ends in .json, .yml or .yaml, with a * "
                           "in the last element only",
                           path->scalar.ptr);
    }
    for (size_t i = 0; i < s.files.count; i++)
        s.files.items[i] = config_path(r, sv_from(s.files.items[i]));
    *(struct prom_file_sd *)item =
        (struct prom_file_sd){s.files.items, s.files.count, s.refresh_ns};
}

// --- http_sd_configs ---

static void check_url(struct config_reader *r, const struct yaml_node *n, const char *url)
{
    if (!url || !*url)
        return config_problem(r, n, "http_sd_configs needs a url");
    struct sv rest = sv_from(url);
    size_t scheme = sv_starts_with(rest, SV("http://"))    ? 7
                    : sv_starts_with(rest, SV("https://")) ? 8
                                                           : 0;
    rest = sv_sub(rest, scheme, rest.len);
    bool host = rest.len && !strchr("/?#:", rest.ptr[0]);
    for (size_t i = 0; i < rest.len; i++)
        host = host && (unsigned char)rest.ptr[i] > ' ';
    if (!scheme || !host)
        config_unexpected(r, config_place(n, "url"), "an http or https URL");
}

void prom_http_sd_read(struct config_reader *r, const struct yaml_node *n, void *item)
{
    struct http_sd_section {
        struct prom_http_sd sd;
        struct http_section http;
    } s = {.sd.refresh_ns = HTTP_SD_REFRESH_NS, .http = http_section_defaults()};
    static const struct config_key keys[] = {
        {"url", CONFIG_TEXT, offsetof(struct http_sd_section, sd.url)},
        {"refresh_interval", CONFIG_DURATION, offsetof(struct http_sd_section, sd.refresh_ns)},
        {"", CONFIG_INLINE, offsetof(struct http_sd_section, http), .keys = http_keys},
        {NULL},
    };
    config_read_section(r, n, keys, &s);
    check_url(r, n, s.sd.url);
    check_refresh(r, n, s.sd.refresh_ns);
    http_section_check(r, n, &s.http);
    s.sd.http = s.http.http;
    *(struct prom_http_sd *)item = s.sd;
}

// --- kubernetes_sd_configs ---

static const char *const role_names[] = {
    [PROM_KUBE_NODE] = "node",
    [PROM_KUBE_SERVICE] = "service",
    [PROM_KUBE_POD] = "pod",
    [PROM_KUBE_ENDPOINTS] = "endpoints",
    [PROM_KUBE_ENDPOINTSLICE] = "endpointslice",
    [PROM_KUBE_INGRESS] = "ingress",
};

#define ROLE_BIT(role) (1u << (role))
#define NO_ROLE (-1)

// Which kinds of objects a role watches, and can therefore select among.
static unsigned selectable_roles(const struct prom_kube_sd *sd)
{
    unsigned roles = ROLE_BIT(sd->role);
    if (sd->role == PROM_KUBE_ENDPOINTS || sd->role == PROM_KUBE_ENDPOINTSLICE)
        roles |= ROLE_BIT(PROM_KUBE_SERVICE) | ROLE_BIT(PROM_KUBE_POD);
    if (sd->attach_node)
        roles |= ROLE_BIT(PROM_KUBE_NODE);
    return roles;
}

static void read_role(struct config_reader *r, const struct yaml_node *n, int *out)
{
    for (int i = 0; n->kind == YAML_SCALAR && i < (int)ARRAY_SIZE(role_names); i++) {
        if (sv_equals(n->scalar, sv_from(role_names[i]))) {
            *out = i;
            return;
        }
    }
    if (!yaml_is_null(n))
        config_unexpected(r, n, "pod, service, endpoints, endpointslice, node or ingress");
}

struct selector_section {
    int role;
    char *label, *field;
};

static void read_selector_role(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_role(r, n, &((struct selector_section *)section)->role);
}

// Terms as in spec.nodeName=n1, joined by commas. The grammar of label selectors is the API
// server's to judge.
static bool is_field_selector(struct sv s)
{
    struct sv term;
    while (sv_next(&s, ',', &term)) {
        size_t equals = sv_find_char(term, '=');
        if (term.len &&
            (equals == (size_t)-1 || equals == 0 || sv_equals(sv_sub(term, 0, equals), SV("!"))))
            return false;
    }
    return true;
}

static void read_selector(struct config_reader *r, const struct yaml_node *n, void *item)
{
    static const struct config_key keys[] = {
        {"role", CONFIG_CUSTOM, 0, read_selector_role},
        {"label", CONFIG_TEXT, offsetof(struct selector_section, label)},
        {"field", CONFIG_TEXT, offsetof(struct selector_section, field)},
        {NULL},
    };
    struct selector_section s = {.role = NO_ROLE};
    unsigned before = r->problems;
    config_read_section(r, n, keys, &s);
    if (s.role == NO_ROLE && r->problems == before)
        config_problem(r, n, "a selector needs a role");
    if (s.field && !is_field_selector(sv_from(s.field)))
        config_unexpected(r, config_place(n, "field"), "terms as in spec.nodeName=n1");
    *(struct prom_kube_selector *)item = (struct prom_kube_selector){
        s.role == NO_ROLE ? 0 : (enum prom_kube_role)s.role, s.label, s.field};
}

struct kube_section {
    struct prom_kube_sd sd;
    struct http_section http;
    int role;
    struct config_list namespaces;
    const struct yaml_node *selectors;
};

static void read_kube_role(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_role(r, n, &((struct kube_section *)section)->role);
}

static void read_namespaces(struct config_reader *r, const struct yaml_node *n, void *section)
{
    static const struct config_key keys[] = {
        {"own_namespace", CONFIG_BOOL, offsetof(struct kube_section, sd.own_namespace)},
        {"names", CONFIG_LIST, offsetof(struct kube_section, namespaces)},
        {NULL},
    };
    config_read_section(r, n, keys, section);
}

static void read_selectors(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct kube_section *s = section;
    s->selectors = n;
    s->sd.selectors =
        config_read_items(r, n, sizeof(*s->sd.selectors), read_selector, &s->sd.selector_count);
}

static void read_attach_metadata(struct config_reader *r, const struct yaml_node *n, void *section)
{
    static const struct config_key keys[] = {
        {"node", CONFIG_BOOL, offsetof(struct kube_section, sd.attach_node)},
        {NULL},
    };
    config_read_section(r, n, keys, section);
}

static void check_selectors(struct config_reader *r, const struct kube_section *s)
{
    unsigned allowed = selectable_roles(&s->sd), seen = 0;
    const struct yaml_node *n = s->selectors ? s->selectors->first : NULL;
    for (size_t i = 0; i < s->sd.selector_count && n; i++, n = n->next) {
        unsigned bit = ROLE_BIT(s->sd.selectors[i].role);
        const char *name = role_names[s->sd.selectors[i].role];
        if (!(allowed & bit))
            config_problem(r, config_place(n, "role"), "role %s watches no %s to select from",
                           role_names[s->sd.role], name);
        else if (seen & bit)
            config_problem(r, config_place(n, "role"), "a second selector of role %s", name);
        seen |= bit;
    }
}

static void check_kube(struct config_reader *r, const struct yaml_node *n,
                       const struct kube_section *s)
{
    const struct prom_kube_sd *sd = &s->sd;
    bool api_server = sd->api_server && *sd->api_server,
         kubeconfig = sd->kubeconfig_file && *sd->kubeconfig_file;
    const struct yaml_node *own = config_place(config_place(n, "namespaces"), "own_namespace");
    if (api_server && kubeconfig)
        config_problem(r, config_place(n, "kubeconfig_file"),
                       "at most one of api_server and kubeconfig_file can be given");
    else if (kubeconfig && !http_section_is_default(&s->http))
        config_problem(
            r, n,
            "kubeconfig_file says how to reach the server: no HTTP client option can be given");
    else if (!api_server && !http_section_is_default(&s->http))
        config_problem(r, n, "HTTP client options need an api_server");
    if (sd->own_namespace && (api_server || kubeconfig))
        config_problem(r, own, "own_namespace is that of a pod: it goes with no %s",
                       api_server ? "api_server" : "kubeconfig_file");
}

void prom_kube_sd_read(struct config_reader *r, const struct yaml_node *n, void *item)
{
    static const struct config_key keys[] = {
        {"role", CONFIG_CUSTOM, 0, read_kube_role},
        {"api_server", CONFIG_TEXT, offsetof(struct kube_section, sd.api_server)},
        {"kubeconfig_file", CONFIG_PATH, offsetof(struct kube_section, sd.kubeconfig_file)},
        {"namespaces", CONFIG_CUSTOM, 0, read_namespaces},
        {"selectors", CONFIG_CUSTOM, 0, read_selectors},
        {"attach_metadata", CONFIG_CUSTOM, 0, read_attach_metadata},
        {"", CONFIG_INLINE, offsetof(struct kube_section, http), .keys = http_keys},
        {NULL},
    };
    struct kube_section s = {.sd.line = n->line, .role = NO_ROLE, .http = http_section_defaults()};
    unsigned before = r->problems;
    config_read_section(r, n, keys, &s);
    if (s.role != NO_ROLE)
        s.sd.role = (enum prom_kube_role)s.role;
    else if (r->problems == before)
        config_problem(r, n,
                       "kubernetes_sd_configs needs a role: pod, service, endpoints, "
                       "endpointslice, node or ingress");
    if (r->problems == before)
        check_selectors(r, &s);
    check_kube(r, n, &s);
    http_section_check(r, n, &s.http);
    s.sd.http = s.http.http;
    s.sd.namespaces = s.namespaces.items;
    s.sd.namespace_count = s.namespaces.count;
    *(struct prom_kube_sd *)item = s.sd;
}
