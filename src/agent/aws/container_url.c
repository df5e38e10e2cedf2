// SPDX-License-Identifier: Apache-2.0
// Strict, so that no other reading of the same URL leads elsewhere: no user part, no backslash,
// addresses only in their usual form.
#include "agent/aws/container_url.h"

#include <arpa/inet.h>
#include <errno.h>

#include "agent/aws/keys.h"

// The host of a URL without user, query and fragment before the path; .len 0 when it is not plain.
static struct sv host_of(struct sv rest)
{
    size_t end = 0;
    while (end < rest.len && rest.ptr[end] != '/' && rest.ptr[end] != '?' && rest.ptr[end] != '#')
        end++;
    struct sv authority = sv_sub(rest, 0, end);
    if (authority.len > 0 && authority.ptr[0] == '[') {
        size_t close = sv_find_char(authority, ']');
        return close == (size_t)-1 ? SV("") : sv_sub(authority, 1, close - 1);
    }
    size_t colon = sv_find_char(authority, ':');
    return sv_sub(authority, 0, colon == (size_t)-1 ? authority.len : colon);
}

static bool is_local_v4(const struct in_addr *a)
{
    uint32_t n = ntohl(a->s_addr);
    return n >> 24 == 127 || n == 0xa9feaa02 || n == 0xa9feaa17; // 169.254.170.2, .23
}

static bool is_local_v6(const struct in6_addr *a)
{
    static const unsigned char pod_identity[16] = {0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23};
    return IN6_IS_ADDR_LOOPBACK(a) || memcmp(a->s6_addr, pod_identity, 16) == 0;
}

// An address as text, or "localhost".
static bool host_is_local(struct sv host)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (sv_equals_nocase(host, SV("localhost")))
        return true;
    if (host.len >= sizeof(text))
        return false;
    sv_copy(text, sizeof(text), host);
    if (inet_pton(AF_INET, text, &v4) == 1)
        return is_local_v4(&v4);
    return inet_pton(AF_INET6, text, &v6) == 1 && is_local_v6(&v6);
}

int aws_container_url_check(struct sv url, bool *out_is_local, struct error *err)
{
    bool https = url.len >= 8 && sv_equals_nocase(sv_sub(url, 0, 8), SV("https://"));
    bool http = url.len >= 7 && sv_equals_nocase(sv_sub(url, 0, 7), SV("http://"));
    if (!aws_is_plain(url) || sv_find_char(url, '@') != (size_t)-1 ||
        sv_find_char(url, '\\') != (size_t)-1 || (!http && !https))
        return error_set(err, -EINVAL,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI is no plain http or https URL");
    struct sv host = host_of(sv_sub(url, https ? 8 : 7, url.len));
    bool is_local = host_is_local(host);
    if (!https && !is_local)
        return error_set(err, -EINVAL,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI: '%.*s' may not be asked by http: "
                         "expected https, a loopback address, 169.254.170.2, 169.254.170.23 or "
                         "[fd00:ec2::23]",
                         SV_FMT(sv_cut(host, 80)));
    *out_is_local = is_local;
    return 0;
}
