// SPDX-License-Identifier: Apache-2.0
// --kubernetes-enable-dra: follows this node's ResourceSlices of NVIDIA's DRA driver at the API
// server, in the background, so that devices of claims are known by UUID and not by their names
// alone. Without access, rights or NODE_NAME the names are what there is; what is known stays while
// the server cannot be asked.
#pragma once

#include "exporter/dra.h"
#include "exporter/options.h"
#include "io/loop.h"

struct slice_watch;

struct slice_watch_config {
    const struct exporter_options *options;
    struct dra *dra;             // filled
    void (*changed)(void *user); // its answers may be others now; may be NULL
    void *user;
};

struct slice_watch_stats {
    bool up; // listed, and watched without trouble
    uint64_t failures;
    const char *version; // of the API, "" not known yet
    const char *problem; // "" none; borrowed until the loop goes on
};

// Loads libcurl. Not being in a cluster is no error: it is logged. 0; -EINVAL with *err (the file
// that --kubeconfig names); -ENOMEM.
int must_use slice_watch_new(struct loop *l, const struct slice_watch_config *config,
                             struct slice_watch **out, struct error *err);
void slice_watch_free(struct slice_watch *w);
void slice_watch_get_stats(const struct slice_watch *w, struct slice_watch_stats *out);
