// SPDX-License-Identifier: Apache-2.0
// The Kubernetes API server: how to reach it (from inside the cluster, by a kubeconfig, or at a
// given URL), and following all objects of one kind by list and watch. Answers are read as they
// come, one object at a time, so memory does not grow with the cluster. Sources:
// kubernetes.io/docs/reference/using-api/api-concepts,
// kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig,
// kubernetes.io/docs/tasks/run-application/access-api-from-pod.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"
#include "codec/json.h"
#include "io/http_client.h"
#include "io/loop.h"

// --- Access ---

// How the server is found: `server`; without it `kubeconfig_file`; without both the service account
// that a pod is given. All borrowed for kube_api_new; NULL: not given.
struct kube_api_config {
    const char *server; // "https://host:port", a path may follow
    const char *kubeconfig_file;
    const char *root; // before /var/run/secrets/..., for tests; NULL: none
    // With `server` only. Of a value and a file at most one each; files are read for each request
    // once they have changed.
    struct http_tls tls;
    const char *user, *user_file, *password, *password_file;
    const char *auth_type, *credentials, *credentials_file; // auth_type NULL: "Bearer"
    const char *proxy_url, *no_proxy;                       // proxy_url NULL: none
    bool proxy_from_environment;
    bool follow_redirects;
    const char *const *headers;      // "Name: value", NULL-ended
    const char *const *header_files; // name, path, name, path, ..., NULL-ended
};

struct kube_api;
// 0; -EINVAL with *err (not in a cluster; a kubeconfig that can't be read or asks for what is not
// supported); -ENOMEM. loop and client are borrowed.
int must_use kube_api_new(struct loop *l, struct http_client *client,
                          const struct kube_api_config *config, struct kube_api **out,
                          struct error *err);
void kube_api_free(struct kube_api *api); // after its watches
// The namespace of the service account or of the kubeconfig's context; NULL: not known.
const char *kube_api_namespace(const struct kube_api *api);
const char *kube_api_server(const struct kube_api *api);

// --- Watch ---

struct kube_resource {
    const char *group; // "" for the core group
    const char *version, *plural;
};
#define KUBE_PODS ((struct kube_resource){"", "v1", "pods"})
#define KUBE_NODES ((struct kube_resource){"", "v1", "nodes"})
#define KUBE_SERVICES ((struct kube_resource){"", "v1", "services"})
#define KUBE_ENDPOINTS ((struct kube_resource){"", "v1", "endpoints"})
#define KUBE_ENDPOINTSLICES ((struct kube_resource){"discovery.k8s.io", "v1", "endpointslices"})
#define KUBE_INGRESSES ((struct kube_resource){"networking.k8s.io", "v1", "ingresses"})

// None of the callbacks may free the watch or its api.
struct kube_watch_config {
    struct kube_resource resource;               // copied; its strings must outlive the watch
    const char *namespace_name;                  // NULL: all, or the resource has none
    const char *label_selector, *field_selector; // NULL: none
    // An object that is new or (perhaps) changed; key is "namespace/name" or "name". Both are valid
    // during the call. -ENOMEM: it comes again later, with all others.
    int (*object)(void *user, struct sv key, const struct json_node *object);
    void (*deleted)(void *user, struct sv key); // of a key told before
    void (*synced)(void *user); // the whole list was told, at first and after each new list
    // One line, or NULL: over. Objects told before stay as they are. Not told: what the next try
    // mends.
    void (*problem)(void *user, const char *text);
    void *user;
    // 0: the default.
    uint64_t watch_ns;         // least length of a watch; up to twice that (5 min)
    uint64_t silence_ns;       // a watch without a byte for so long is begun anew (3 min)
    uint64_t backoff_least_ns; // between tries (800 ms)
    uint64_t backoff_most_ns;  // (30 s)
    unsigned page;             // objects asked for at once (500)
};

struct kube_watch_stats {
    size_t objects; // there are now
    uint64_t lists, pages, watches, events, failures;
    uint64_t skipped; // objects that could not be read, or too many of them
    unsigned last_status;
};

struct kube_watch;
// Strings are copied. Begins with the next turn of the loop. 0, -ENOMEM.
int must_use kube_watch_new(struct kube_api *api, const struct kube_watch_config *config,
                            struct kube_watch **out);
void kube_watch_free(struct kube_watch *w);
void kube_watch_get_stats(const struct kube_watch *w, struct kube_watch_stats *out);
// --- Versions of a group ---

// Neither callback may free the group or its api.
struct kube_group_config {
    const char *group;           // "resource.k8s.io"
    const char *const *versions; // wanted, best first, NULL-ended; both must outlive it
    // Once: the best that the server has, one of versions.
    void (*chosen)(void *user, const char *version);
    // One line, when it cannot be told yet; asked again until it can.
    void (*problem)(void *user, const char *text);
    void *user;
};
struct kube_group;
// Begins with the next turn of the loop. 0, -ENOMEM.
int must_use kube_group_new(struct kube_api *api, const struct kube_group_config *config,
                            struct kube_group **out);
void kube_group_free(struct kube_group *g);

// metadata.name and so on: the string at that path of keys; empty when absent.
struct sv kube_text(const struct json_node *object, const char *key, const char *key2);
