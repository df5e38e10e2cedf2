// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kube/api_access.h"

struct kube_api_call {
    const char *path; // with its query; behind the server's URL
    uint64_t deadline_ns;
    int (*data)(void *user, struct sv piece);
    void (*done)(void *user, const struct http_client_response *response);
    void *user;
};

struct loop *kube_api_loop(const struct kube_api *api);
struct http_client *kube_api_client(const struct kube_api *api);
// A GET with the credentials there are now. As http_client_start, and -EACCES with *err for
// credentials that cannot be read.
int must_use kube_api_start(struct kube_api *api, struct http_handle *handle,
                            const struct kube_api_call *call, struct http_call **out,
                            struct error *err);
// The next request reads its credentials anew: the server did not take them.
void kube_api_renew_credentials(struct kube_api *api);
