// SPDX-License-Identifier: Apache-2.0
// Where the API server is and who asks, whichever way it was configured.
#pragma once

#include "base/arena.h"
#include "kube/api.h"

// Strings live in the arena, NULL when not given. Members as in struct kube_api_config.
struct kube_access {
    struct arena arena; // erased at the end: it may hold secrets
    const char *server; // without a slash at its end
    const char *namespace_name;
    struct http_tls tls;
    const char *user, *user_file, *password, *password_file;
    const char *auth_type, *credentials, *credentials_file;
    const char *proxy_url, *no_proxy;
    bool proxy_from_environment, follow_redirects;
    const char **headers, **header_files;
};

// As kube_api_new. *out is to be deinitialised whatever the outcome.
int must_use kube_access_init(struct kube_access *a, const struct kube_api_config *config,
                              struct error *err);
void kube_access_deinit(struct kube_access *a);

// The current context of a kubeconfig; file names its directory for relative paths. No I/O.
int must_use kube_access_parse_kubeconfig(struct kube_access *a, struct sv text, const char *file,
                                          struct error *err);
