// SPDX-License-Identifier: Apache-2.0
// The parts of a kubeconfig that lead to one server with one identity: current-context, its cluster
// and its user. What else stands there is not looked at; what would be needed and is not supported
// (plug-ins that fetch credentials, impersonation) is named. Data given inline win over files, as
// in client-go.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "codec/base64.h"
#include "codec/yaml.h"
#include "kube/api_access.h"

struct reader {
    struct kube_access *access;
    const char *file;
    struct error *err;
};

static int problem(const struct reader *r, const struct yaml_node *at, const char *text,
                   struct sv name)
{
    return error_set_at(r->err, -EINVAL, r->file, at ? at->line : 0, at ? at->column : 0,
                        "%s'%.*s'", text, name.len > 128 ? 128 : (int)name.len, name.ptr);
}

static int memory(const struct reader *r)
{
    return error_set(r->err, r->access->arena.error ? r->access->arena.error : -ENOMEM,
                     "out of memory");
}

// What is not there reads as empty.
static int expect(const struct reader *r, const struct yaml_node *n, enum yaml_kind kind)
{
    return n ? yaml_expect(n, kind, r->file, r->err) : 0;
}

// The text of a key, in the arena; *out stays NULL when it is absent or empty.
static int read_text(const struct reader *r, const struct yaml_node *in, const char *key,
                     const char **out)
{
    const struct yaml_node *n = yaml_find(in, key);
    struct sv text;
    if (yaml_is_null(n))
        return 0;
    if (yaml_read_text(n, r->file, &text, r->err) < 0)
        return -EINVAL;
    if (text.len == 0)
        return 0;
    *out = arena_dup(&r->access->arena, text);
    return *out ? 0 : memory(r);
}

// A path, relative to the directory of the kubeconfig.
static int read_path(const struct reader *r, const struct yaml_node *in, const char *key,
                     const char **out)
{
    const char *path = NULL;
    int e = read_text(r, in, key, &path);
    if (e < 0 || !path)
        return e;
    const char *slash = strrchr(r->file, '/');
    if (*path == '/' || !slash) {
        *out = path;
        return 0;
    }
    size_t directory = (size_t)(slash - r->file) + 1, length = strlen(path);
    char *whole = arena_alloc(&r->access->arena, directory + length + 1);
    if (!whole)
        return memory(r);
    memcpy(whole, r->file, directory);
    memcpy(whole + directory, path, length + 1);
    *out = whole;
    return 0;
}

// Base64 of PEM text.
static int read_data(const struct reader *r, const struct yaml_node *in, const char *key,
                     const char **out)
{
    const struct yaml_node *n = yaml_find(in, key);
    struct sv text;
    size_t length;
    if (yaml_is_null(n))
        return 0;
    if (yaml_read_text(n, r->file, &text, r->err) < 0)
        return -EINVAL;
    text = sv_trim(text, " \n");
    size_t room = text.len / 4 * 3;
    char *bytes = arena_alloc(&r->access->arena, room + 1);
    if (!bytes)
        return memory(r);
    if (base64_decode(text, bytes, room, &length) < 0)
        return problem(r, n, "not base64: ", n->key);
    bytes[length] = '\0';
    *out = bytes;
    return 0;
}

// The element of the list `section` whose name is `name`, and in it the mapping `inside`.
static int find_named(const struct reader *r, const struct yaml_node *root, const char *section,
                      const char *inside, const char *name, const struct yaml_node **out)
{
    const struct yaml_node *list = yaml_find(root, section);
    if (expect(r, list, YAML_SEQUENCE) < 0)
        return -EINVAL;
    for (const struct yaml_node *n = list ? list->first : NULL; n; n = n->next) {
        const struct yaml_node *at = n->kind == YAML_MAPPING ? yaml_find(n, "name") : NULL;
        if (!at || at->kind != YAML_SCALAR || !sv_equals(at->scalar, sv_from(name)))
            continue;
        *out = yaml_find(n, inside);
        return expect(r, *out, YAML_MAPPING);
    }
    return error_set_at(r->err, -EINVAL, r->file, list ? list->line : 1, list ? list->column : 1,
                        "%s: no entry named '%.128s'", section, name);
}

static int read_cluster(const struct reader *r, const struct yaml_node *n)
{
    struct kube_access *a = r->access;
    const struct yaml_node *insecure = yaml_find(n, "insecure-skip-tls-verify");
    int e = read_text(r, n, "server", &a->server);
    if (e == 0 && !a->server)
        return error_set_at(r->err, -EINVAL, r->file, n ? n->line : 1, n ? n->column : 1,
                            "the cluster has no server");
    if (e == 0)
        e = read_data(r, n, "certificate-authority-data", &a->tls.ca_pem);
    if (e == 0 && !a->tls.ca_pem)
        e = read_path(r, n, "certificate-authority", &a->tls.ca_file);
    if (e == 0)
        e = read_text(r, n, "tls-server-name", &a->tls.server_name);
    if (e == 0)
        e = read_text(r, n, "proxy-url", &a->proxy_url);
    if (e == 0 && !yaml_is_null(insecure))
        e = yaml_read_bool(insecure, r->file, &a->tls.insecure, r->err);
    return e;
}

static int check_supported(const struct reader *r, const struct yaml_node *user)
{
    static const struct {
        const char *key, *text;
    } unsupported[] = {
        {"exec",
         "credential plug-ins (exec) are not supported; give the user a token or tokenFile"},
        {"auth-provider", "auth-provider plug-ins are not supported; give the user a token or "
                          "tokenFile"},
        {"as", "impersonation (as) is not supported"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(unsupported); i++) {
        const struct yaml_node *n = yaml_find(user, unsupported[i].key);
        if (!yaml_is_null(n))
            return error_set_at(r->err, -EINVAL, r->file, n->line, n->column, "%s",
                                unsupported[i].text);
    }
    return 0;
}

static int read_user(const struct reader *r, const struct yaml_node *n)
{
    struct kube_access *a = r->access;
    int e = check_supported(r, n);
    if (e == 0)
        e = read_path(r, n, "tokenFile", &a->credentials_file);
    if (e == 0 && !a->credentials_file)
        e = read_text(r, n, "token", &a->credentials);
    if (e == 0)
        e = read_data(r, n, "client-certificate-data", &a->tls.cert_pem);
    if (e == 0 && !a->tls.cert_pem)
        e = read_path(r, n, "client-certificate", &a->tls.cert_file);
    if (e == 0)
        e = read_data(r, n, "client-key-data", &a->tls.key_pem);
    if (e == 0 && !a->tls.key_pem)
        e = read_path(r, n, "client-key", &a->tls.key_file);
    if (e == 0)
        e = read_text(r, n, "username", &a->user);
    if (e == 0)
        e = read_text(r, n, "password", &a->password);
    return e;
}

static int read_context(const struct reader *r, const struct yaml_node *root)
{
    const char *current = NULL, *cluster = NULL, *user = NULL;
    const struct yaml_node *context = NULL, *section = NULL;
    int e = read_text(r, root, "current-context", &current);
    if (e == 0 && !current)
        return error_set(r->err, -EINVAL, "%s: no current-context", r->file);
    if (e == 0)
        e = find_named(r, root, "contexts", "context", current, &context);
    if (e == 0)
        e = read_text(r, context, "cluster", &cluster);
    if (e == 0 && !cluster)
        return problem(r, context, "no cluster in context ", sv_from(current));
    if (e == 0)
        e = read_text(r, context, "user", &user);
    if (e == 0)
        e = read_text(r, context, "namespace", &r->access->namespace_name);
    if (e == 0)
        e = find_named(r, root, "clusters", "cluster", cluster, &section);
    if (e == 0)
        e = read_cluster(r, section);
    if (e < 0 || !user)
        return e;
    e = find_named(r, root, "users", "user", user, &section);
    return e == 0 ? read_user(r, section) : e;
}

int kube_access_parse_kubeconfig(struct kube_access *a, struct sv text, const char *file,
                                 struct error *err)
{
    struct reader r = {a, file, err};
    struct yaml_document *d = NULL;
    int e = yaml_parse(text, file, &d, err);
    if (e < 0)
        return e == -ENOMEM ? e : -EINVAL;
    e = yaml_expect(yaml_root(d), YAML_MAPPING, file, err);
    if (e == 0)
        e = read_context(&r, yaml_root(d));
    yaml_document_erase(d);
    return e;
}
