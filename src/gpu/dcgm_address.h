// SPDX-License-Identifier: Apache-2.0
// Where a host engine listens, as people write it: HOST, HOST:PORT, [IPV6]:PORT, tcp://HOST[:PORT],
// unix:///PATH, unix:/PATH, /PATH, vsock://CID[:PORT]. Without a port it is 5555, an empty text is
// localhost, and localhost 127.0.0.1, where host engines listen. The forms with :// are those of
// DCGM 4.5 (DCGM_TCP_SOCKET_PREFIX and its like in dcgm_structs.h).
#pragma once

#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

#define DCGM_DEFAULT_PORT 5555

enum dcgm_address_kind {
    DCGM_ADDRESS_TCP,
    DCGM_ADDRESS_UNIX,
    DCGM_ADDRESS_VSOCK,
};

struct dcgm_address {
    enum dcgm_address_kind kind;
    bool is_uri;    // written with ://
    char host[254]; // TCP: name or number, without brackets
    uint16_t port;  // TCP
    char path[108]; // UNIX
    uint32_t cid, vsock_port;
    // "127.0.0.1:5555", "[::1]:5555", "/run/dcgm.sock", "2:5555"
    char plain[264];
    // "tcp://127.0.0.1:5555", "unix:///run/dcgm.sock", "vsock://2:5555"
    char uri[272];
};

// 0; -EINVAL with *why (static text).
int must_use dcgm_address_parse(struct sv text, struct dcgm_address *out, const char **why);
