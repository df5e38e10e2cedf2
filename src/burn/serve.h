// SPDX-License-Identifier: Apache-2.0
// --listen: the record as Prometheus metrics. Belongs to the loop's thread.
#pragma once

#include "base/error.h"
#include "io/loop.h"

struct buf;
struct burn_server;
// render writes the page of that moment. 0, or negative errno with *err.
int must_use burn_server_new(struct loop *l, const char *address,
                             void (*render)(void *user, struct buf *out), void *user,
                             struct burn_server **out, struct error *err);
void burn_server_free(struct burn_server *s);
