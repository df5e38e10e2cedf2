// SPDX-License-Identifier: Apache-2.0
#include "gpu/dcgm_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

static int refuse(const char **why, const char *text)
{
    *why = text;
    return -EINVAL;
}

// Takes prefix off the start of s.
static bool take_prefix(struct sv *s, struct sv prefix)
{
    if (!sv_starts_with(*s, prefix))
        return false;
    *s = sv_sub(*s, prefix.len, s->len);
    return true;
}

static bool has_odd_bytes(struct sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == 0x7f)
            return true;
    return false;
}

// Splits "HOST", "HOST:PORT", "[V6]", "[V6]:PORT", "V6": *port is empty without one. False: a
// bracket is open, or something else than a port follows it.
static bool split_port(struct sv text, struct sv *host, struct sv *port)
{
    *port = SV("");
    if (take_prefix(&text, SV("["))) {
        size_t end = sv_find_char(text, ']');
        if (end == (size_t)-1)
            return false;
        *host = sv_sub(text, 0, end);
        struct sv rest = sv_sub(text, end + 1, text.len);
        if (rest.len == 0)
            return true;
        *port = sv_sub(rest, 1, rest.len);
        return rest.ptr[0] == ':' && port->len > 0;
    }
    size_t colon = sv_find_char(text, ':');
    bool is_v6 =
        colon != (size_t)-1 && sv_find_char(sv_sub(text, colon + 1, text.len), ':') != (size_t)-1;
    *host = text;
    if (colon == (size_t)-1 || is_v6)
        return true;
    *host = sv_sub(text, 0, colon);
    *port = sv_sub(text, colon + 1, text.len);
    return port->len > 0;
}

// What has a colon is an IPv6 address, with a zone perhaps, or nothing.
static bool is_host(struct sv host)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr binary;
    if (has_odd_bytes(host) || sv_find_char(host, '/') != (size_t)-1 ||
        sv_find_char(host, '[') != (size_t)-1 || sv_find_char(host, ']') != (size_t)-1)
        return false;
    if (sv_find_char(host, ':') == (size_t)-1)
        return true;
    struct sv number = sv_sub(host, 0, sv_find_char(host, '%'));
    if (number.len >= sizeof(address))
        return false;
    sv_copy(address, sizeof(address), number);
    return inet_pton(AF_INET6, address, &binary) == 1;
}

static int parse_tcp(struct sv text, struct dcgm_address *a, const char **why)
{
    struct sv host, port;
    uint64_t number = DCGM_DEFAULT_PORT;
    if (!split_port(text, &host, &port))
        return refuse(why, "not HOST or HOST:PORT");
    if (host.len == 0)
        return refuse(why, "no host");
    if (sv_equals_nocase(host, SV("localhost")))
        host = SV("127.0.0.1"); // an image without /etc/hosts has no such name
    if (host.len >= sizeof(a->host) || !is_host(host))
        return refuse(why, "not the name of a host");
    if (port.len && num_parse_u64(port, 1, UINT16_MAX, &number) < 0)
        return refuse(why, "not a port");
    a->kind = DCGM_ADDRESS_TCP;
    a->port = (uint16_t)number;
    sv_copy(a->host, sizeof(a->host), host);
    bool is_v6 = sv_find_char(host, ':') != (size_t)-1;
    (void)snprintf(a->plain, sizeof(a->plain), is_v6 ? "[%s]:%u" : "%s:%u", a->host,
                   (unsigned)a->port);
    (void)snprintf(a->uri, sizeof(a->uri), "tcp://%s", a->plain);
    return 0;
}

static int parse_unix(struct sv path, struct dcgm_address *a, const char **why)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return refuse(why, "not an absolute path");
    if (path.len >= sizeof(a->path))
        return refuse(why, "a path of a socket has 107 bytes at most");
    if (memchr(path.ptr, '\0', path.len))
        return refuse(why, "not a path");
    a->kind = DCGM_ADDRESS_UNIX;
    sv_copy(a->path, sizeof(a->path), path);
    (void)snprintf(a->plain, sizeof(a->plain), "%s", a->path);
    (void)snprintf(a->uri, sizeof(a->uri), "unix://%s", a->path);
    return 0;
}

static int parse_vsock(struct sv text, struct dcgm_address *a, const char **why)
{
    struct sv cid, port;
    uint64_t cid_number, port_number = DCGM_DEFAULT_PORT;
    if (!split_port(text, &cid, &port) || num_parse_u64(cid, 0, UINT32_MAX - 1, &cid_number) < 0)
        return refuse(why, "not CID or CID:PORT");
    if (port.len && num_parse_u64(port, 0, UINT32_MAX - 1, &port_number) < 0)
        return refuse(why, "not a port");
    a->kind = DCGM_ADDRESS_VSOCK;
    a->cid = (uint32_t)cid_number;
    a->vsock_port = (uint32_t)port_number;
    (void)snprintf(a->plain, sizeof(a->plain), "%u:%u", a->cid, a->vsock_port);
    (void)snprintf(a->uri, sizeof(a->uri), "vsock://%s", a->plain);
    return 0;
}

int dcgm_address_parse(struct sv text, struct dcgm_address *out, const char **why)
{
    *out = (struct dcgm_address){0};
    text = sv_trim(text, " \t");
    if (text.len == 0)
        text = SV("localhost");
    if (text.ptr[0] == '/')
        return parse_unix(text, out, why);
    out->is_uri = true;
    if (take_prefix(&text, SV("unix://")))
        return parse_unix(text, out, why);
    if (sv_starts_with(text, SV("unix:/")))
        return parse_unix(sv_sub(text, strlen("unix:"), text.len), out, why);
    if (take_prefix(&text, SV("tcp://")))
        return parse_tcp(text, out, why);
    if (take_prefix(&text, SV("vsock://")))
        return parse_vsock(text, out, why);
    out->is_uri = false;
    if (sv_find(text, SV("://")) != (size_t)-1)
        return refuse(why, "tcp://, unix:// and vsock:// are known");
    return parse_tcp(text, out, why);
}
