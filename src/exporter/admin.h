// SPDX-License-Identifier: Apache-2.0
// Control requests: POST /-/reload, /-/release, /-/attach, /-/pause and /-/resume answer 200, or
// 409 with the reason as text. Only on a loopback or unix address of its own; a unix socket is for
// its owner alone. Other methods get 405, other paths 404, and requests that a web page had a
// browser make (Origin or Sec-Fetch-Site in them) 403.
#pragma once

#include "base/error.h"
#include "io/loop.h"

enum admin_command {
    ADMIN_RELOAD,
    ADMIN_RELEASE,
    ADMIN_ATTACH,
    ADMIN_PAUSE,  // of DCGM's profiling
    ADMIN_RESUME, //
};

struct admin_config {
    const char
        *address; // "127.0.0.1:9402", "localhost:9402", "[::1]:9402", "unix:/run/podgpu.sock"
    // 0; negative with *err; or ADMIN_LATER: the client waits for admin_finish, which the other
    // side bounds, and until then requests that would have to wait too are refused. admin_free may
    // not be called from here.
    int (*command)(void *user, enum admin_command command, struct error *err);
    void *user;
};

#define ADMIN_LATER 1

struct admin;
// 0; -EINVAL with *err when the address is not loopback or unix; as http_server_new.
int must_use admin_new(struct loop *l, const struct admin_config *config, struct admin **out,
                       struct error *err);
unsigned admin_port(const struct admin *a); // as bound; 0 for unix
// The outcome of the command that was put off: 0, or negative with the reason. None waiting:
// nothing.
void admin_finish(struct admin *a, int result, const char *reason);
void admin_free(struct admin *a);
