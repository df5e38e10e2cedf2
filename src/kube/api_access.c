// SPDX-License-Identifier: Apache-2.0
#include "kube/api_access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"

#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

static int keep(struct kube_access *a, struct sv text, const char **out)
{
    *out = arena_dup(&a->arena, text);
    return *out ? 0 : -ENOMEM;
}

static int keep_given(struct kube_access *a, const char *text, const char **out)
{
    return text && *text ? keep(a, sv_from(text), out) : 0;
}

// --- A given server ---

static int keep_list(struct kube_access *a, const char *const *list, const char ***out)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    const char **copy = arena_alloc(&a->arena, (count + 1) * sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (keep(a, sv_from(list[i]), &copy[i]) < 0)
            return -ENOMEM;
    copy[count] = NULL;
    *out = copy;
    return 0;
}

static int init_given(struct kube_access *a, const struct kube_api_config *c)
{
    const struct {
        const char *from, **to;
    } texts[] = {
        {c->server, &a->server},
        {c->tls.ca_file, &a->tls.ca_file},
        {c->tls.cert_file, &a->tls.cert_file},
        {c->tls.key_file, &a->tls.key_file},
        {c->tls.ca_pem, &a->tls.ca_pem},
        {c->tls.cert_pem, &a->tls.cert_pem},
        {c->tls.key_pem, &a->tls.key_pem},
        {c->tls.server_name, &a->tls.server_name},
        {c->user, &a->user},
        {c->user_file, &a->user_file},
        {c->password, &a->password},
        {c->password_file, &a->password_file},
        {c->auth_type, &a->auth_type},
        {c->credentials, &a->credentials},
        {c->credentials_file, &a->credentials_file},
        {c->proxy_url, &a->proxy_url},
        {c->no_proxy, &a->no_proxy},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (keep_given(a, texts[i].from, texts[i].to) < 0)
            return -ENOMEM;
    a->tls.insecure = c->tls.insecure;
    a->tls.min_version = c->tls.min_version;
    a->tls.max_version = c->tls.max_version;
    a->proxy_from_environment = c->proxy_from_environment;
    a->follow_redirects = c->follow_redirects;
    int r = keep_list(a, c->headers, &a->headers);
    return r < 0 ? r : keep_list(a, c->header_files, &a->header_files);
}

// --- A kubeconfig ---

static int init_kubeconfig(struct kube_access *a, const char *file, struct error *err)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    int r = file_read(file, &text, err);
    if (r == 0)
        r = kube_access_parse_kubeconfig(a, buf_sv(&text), file, err);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_deinit(&text);
    a->proxy_from_environment = true; // as kubectl
    return r == 0 || r == -ENOMEM ? r : -EINVAL;
}

// --- The service account of a pod ---

static int account_path(struct kube_access *a, const char *root, const char *name, const char **out)
{
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s" SERVICE_ACCOUNT "%s", root ? root : "", name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    return keep(a, sv_from(path), out);
}

static int read_namespace(struct kube_access *a, const char *path)
{
    struct buf b = BUF_INIT(LIMIT_KUBE_SELECTOR_BYTES);
    int r = file_read(path, &b, NULL);
    struct sv name = sv_trim(buf_sv(&b), " \t\r\n");
    if (r == 0 && name.len > 0)
        r = keep(a, name, &a->namespace_name);
    buf_deinit(&b);
    return r == -ENOMEM ? r : 0; // without it own_namespace is refused, and nothing else
}

static int cluster_address(struct kube_access *a, const char *host, const char *port,
                           struct error *err)
{
    char url[512];
    uint64_t number;
    if (num_parse_u64(sv_from(port), 1, UINT16_MAX, &number) < 0)
        return error_set(err, -EINVAL, "KUBERNETES_SERVICE_PORT is '%.32s', not a port", port);
    bool brackets = strchr(host, ':') != NULL;
    int length = snprintf(url, sizeof(url), "https://%s%s%s:%u", brackets ? "[" : "", host,
                          brackets ? "]" : "", (unsigned)number);
    if (length < 0 || (size_t)length >= sizeof(url))
        return error_set(err, -EINVAL, "KUBERNETES_SERVICE_HOST is too long");
    return keep(a, sv_from(url), &a->server);
}

static int init_cluster(struct kube_access *a, const char *root, struct error *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const char *namespace_file = NULL;
    if (!host || !*host || !port || !*port)
        return error_set(
            err, -EINVAL,
            "not in a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are "
            "not set): give an api_server or a kubeconfig_file");
    int r = cluster_address(a, host, port, err);
    if (r == 0)
        r = account_path(a, root, "token", &a->credentials_file);
    if (r == 0)
        r = account_path(a, root, "ca.crt", &a->tls.ca_file);
    if (r == 0)
        r = account_path(a, root, "namespace", &namespace_file);
    if (r < 0)
        return r;
    // What can't be read now is a pod without a service account, and stays so.
    struct file_stamp token = file_stamp(a->credentials_file);
    if (!token.there)
        return error_set(err, -EINVAL, "no service account: cannot read '%s': %s",
                         a->credentials_file, strerror(token.error ? token.error : ENOENT));
    return read_namespace(a, namespace_file);
}

static int check_server(struct kube_access *a, struct error *err)
{
    struct sv server = sv_from(a->server);
    if (!sv_starts_with(server, SV("https://")) && !sv_starts_with(server, SV("http://")))
        return error_set(err, -EINVAL, "API server '%.200s': expected http:// or https://",
                         a->server);
    while (server.len > 0 && server.ptr[server.len - 1] == '/')
        server.len--;
    return keep(a, server, &a->server);
}

int kube_access_init(struct kube_access *a, const struct kube_api_config *config, struct error *err)
{
    int r;
    *a = (struct kube_access){.arena = ARENA_INIT(LIMIT_KUBE_ACCESS_BYTES)};
    if (config->server && *config->server)
        r = init_given(a, config);
    else if (config->kubeconfig_file && *config->kubeconfig_file)
        r = init_kubeconfig(a, config->kubeconfig_file, err);
    else
        r = init_cluster(a, config->root, err);
    if (r == 0)
        r = check_server(a, err);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    return r;
}

void kube_access_deinit(struct kube_access *a)
{
    arena_erase(&a->arena);
    arena_deinit(&a->arena);
}
