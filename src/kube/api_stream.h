// SPDX-License-Identifier: Apache-2.0
// Cuts what a Kubernetes API server sends, as it comes, into single objects: the elements of
// "items" of a list, the events of a watch. One object is in memory at a time. Source:
// kubernetes.io/docs/reference/using-api/api-concepts.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/sv.h"

enum kube_stream_kind {
    KUBE_STREAM_LIST,
    KUBE_STREAM_WATCH,
};

struct kube_stream {
    enum kube_stream_kind kind;
    // Each object, whole, valid during the call. Non-zero ends the feed with it.
    int (*found)(void *user, struct sv object);
    void *user;
    struct buf object;   // under way; its ceiling is that of one object
    struct buf rest;     // of a list: the document without the elements of "items"
    size_t depth, level; // level: the depth at which objects of interest begin
    size_t key_len;
    char key[8]; // the latest string at depth 1, cut
    bool in_string, escaped, collecting, in_items, broken;
    size_t skipped; // objects over the ceiling
};

void kube_stream_init(struct kube_stream *s, int (*found)(void *user, struct sv object),
                      void *user);
void kube_stream_deinit(struct kube_stream *s);
void kube_stream_start(struct kube_stream *s,
                       enum kube_stream_kind kind); // forgets all but skipped
// 0; -EBADMSG (not JSON objects; sticks); -ENOMEM; what found returned.
int must_use kube_stream_feed(struct kube_stream *s, struct sv piece);
// Whether the document or the last event is whole.
bool kube_stream_is_complete(const struct kube_stream *s);
