// SPDX-License-Identifier: Apache-2.0
// A TCP connection that is being made: the name is looked up on the pool, each address is tried.
#pragma once

#include "base/error.h"
#include "io/loop.h"

struct tcp_connect;
// where: "host:port", "[v6]:port". connected comes once, not from inside the call: a non-blocking
// descriptor, the callee's, or -1 and why. 0; -EINVAL with *err; -ENOMEM.
int must_use tcp_connect_new(struct loop *l, const char *where,
                             void (*connected)(void *user, int fd, const char *error), void *user,
                             struct tcp_connect **out, struct error *err);
void tcp_connect_free(struct tcp_connect *c); // cancels; allowed inside connected
