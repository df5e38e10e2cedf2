// SPDX-License-Identifier: Apache-2.0
// Control requests: POST /-/reload, /-/release, /-/attach answer 200, or 409 with the reason as text; /-/pause and
// /-/resume need the DCGM source. Only on a loopback or unix address of its own.
#pragma once

#include "base/error.h"
#include "io/loop.h"

enum admin_command {
    ADMIN_RELOAD,
    ADMIN_RELEASE,
    ADMIN_ATTACH,
};

struct admin_config {
    const char *address; // "127.0.0.1:9402", "[::1]:9402", "unix:/run/podgpu/admin.sock"
    int (*command)(void *user, enum admin_command command, struct error *err); // 0, or negative with *err
    void *user;
};

struct admin;
// 0; -EINVAL with *err when the address is not loopback or unix; as http_server_new.
int must_use admin_new(struct loop *l, const struct admin_config *config, struct admin **out, struct error *err);
void admin_free(struct admin *a);
