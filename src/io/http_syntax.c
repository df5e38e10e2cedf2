// SPDX-License-Identifier: Apache-2.0
// Each function reads its text once from left to right. Invariant of http_unescape: what is written
// never overtakes what is read.
#include "io/http_syntax.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "codec/base64.h"

#define OPTIONAL_WHITESPACE " \t"

// --- Accept-Encoding ---

// qvalue = ( "0" [ "." *3DIGIT ] ) / ( "1" [ "." *3"0" ] ); -1: malformed.
static int read_weight(struct sv s)
{
    if (s.len == 0 || s.len > 5 || (s.ptr[0] != '0' && s.ptr[0] != '1'))
        return -1;
    int weight = (s.ptr[0] - '0') * 1000;
    if (s.len > 1 && s.ptr[1] != '.')
        return -1;
    int unit = 100;
    for (size_t i = 2; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return -1;
        weight += (s.ptr[i] - '0') * unit;
        unit /= 10;
    }
    return weight <= 1000 ? weight : -1;
}

// The weight among a coding's parameters, 1 when there is none.
static int find_weight(struct sv parameters)
{
    struct sv one;
    while (sv_next(&parameters, ';', &one)) {
        one = sv_trim(one, OPTIONAL_WHITESPACE);
        if (sv_equals_nocase(sv_sub(one, 0, 2), SV("q=")))
            return read_weight(sv_sub(one, 2, one.len));
    }
    return 1000;
}

void accept_encoding_read(struct accept_encoding *a, struct sv value)
{
    struct sv item;
    while (sv_next(&value, ',', &item)) {
        struct sv coding;
        if (!sv_next(&item, ';', &coding))
            continue;
        coding = sv_trim(coding, OPTIONAL_WHITESPACE);
        int weight = find_weight(item);
        if (weight < 0)
            continue;
        if (sv_equals_nocase(coding, SV("gzip")) || sv_equals_nocase(coding, SV("x-gzip")))
            a->gzip = weight;
        else if (sv_equals_nocase(coding, SV("identity")))
            a->identity = weight;
        else if (sv_equals(coding, SV("*")))
            a->any = weight;
    }
}

bool accept_encoding_wants_gzip(const struct accept_encoding *a)
{
    int gzip = a->gzip >= 0 ? a->gzip : a->any;
    return gzip > 0 && gzip >= a->identity;
}

// --- Names and escapes ---

static bool is_token_char(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c);
}

bool http_name_is_token(struct sv name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (!is_token_char(name.ptr[i]))
            return false;
    }
    return name.len > 0;
}

size_t http_unescape(char *s)
{
    size_t to = 0;
    for (size_t from = 0; s[from]; to++) {
        int high = s[from] == '%' ? num_hex_digit(s[from + 1]) : -1;
        int low = high >= 0 ? num_hex_digit(s[from + 2]) : -1;
        int byte = low >= 0 ? high * 16 + low : 0;
        s[to] = byte ? (char)byte : s[from];
        from += byte ? 3 : 1;
    }
    s[to] = '\0';
    return to;
}

// --- Paths ---

static bool is_dots(struct sv segment)
{
    return sv_equals(segment, SV(".")) || sv_equals(segment, SV(".."));
}

bool http_path_is_clean(struct sv path)
{
    struct sv segment;
    if (path.len == 0 || path.ptr[0] != '/')
        return false;
    for (struct sv rest = sv_sub(path, 1, path.len); sv_next(&rest, '/', &segment);)
        if (segment.len == 0 || is_dots(segment))
            return false;
    return true;
}

// unreserved and sub-delims of RFC 3986, ':' and '@'.
static bool is_path_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~!$&'()*+,;=:@", c) != NULL);
}

static size_t escape_segment(struct sv segment, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < segment.len; i++) {
        unsigned char c = (unsigned char)segment.ptr[i];
        if (is_path_char((char)c)) {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    return n;
}

// The length without the last segment and its slash.
static size_t drop_segment(const char *out, size_t n)
{
    while (n > 0 && out[--n] != '/')
        ;
    return n;
}

int http_path_clean(struct sv path, char *out, size_t out_bytes)
{
    size_t n = 0;
    struct sv segment;
    if (out_bytes < 3 || path.len > (out_bytes - 3) / 3) // every byte escaped, two slashes, NUL
        return -E2BIG;
    for (struct sv rest = path; sv_next(&rest, '/', &segment);) {
        if (sv_equals(segment, SV("..")))
            n = drop_segment(out, n);
        if (segment.len == 0 || is_dots(segment))
            continue;
        out[n++] = '/';
        n += escape_segment(segment, out + n);
    }
    if (n == 0 || path.ptr[path.len - 1] == '/')
        out[n++] = '/';
    out[n] = '\0';
    return 0;
}

// --- Basic credentials ---

int http_basic_decode(struct sv value, char *out, size_t out_bytes, struct sv *out_user,
                      struct sv *out_password)
{
    static const struct sv scheme = {"Basic ", 6};
    if (!sv_equals_nocase(sv_sub(value, 0, scheme.len), scheme))
        return -EINVAL;
    struct sv credentials = sv_trim(sv_sub(value, scheme.len, value.len), OPTIONAL_WHITESPACE);
    struct sv both = {out, 0};
    if (base64_decode(credentials, out, out_bytes, &both.len) < 0)
        return -EINVAL;
    size_t colon = sv_find_char(both, ':');
    if (colon == (size_t)-1)
        return -EINVAL;
    *out_user = sv_sub(both, 0, colon);
    *out_password = sv_sub(both, colon + 1, both.len);
    return 0;
}

// --- Addresses ---

static int parse_unix(const char *text, struct sv path, struct http_address *out, struct error *err)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return error_set(err, -EINVAL, "address '%.120s': a unix socket needs an absolute path",
                         text);
    if (path.len >= HTTP_UNIX_PATH_BYTES)
        return error_set(err, -EINVAL,
                         "address '%.120s': the path of a unix socket has at most %d bytes", text,
                         HTTP_UNIX_PATH_BYTES - 1);
    *out = (struct http_address){.is_unix = true};
    sv_copy(out->host, sizeof(out->host), path);
    return 0;
}

int http_address_parse(const char *text, struct http_address *out, struct error *err)
{
    struct sv all = sv_from(text);
    if (sv_starts_with(all, SV("unix:")))
        return parse_unix(text, sv_sub(all, 5, all.len), out, err);
    size_t colon = all.len;
    while (colon > 0 && all.ptr[colon - 1] != ':')
        colon--;
    if (colon == 0)
        return error_set(err, -EINVAL,
                         "address '%.120s': expected host:port, :port, [v6]:port or unix:/path",
                         text);
    uint64_t port;
    if (num_parse_u64(sv_sub(all, colon, all.len), 0, UINT16_MAX, &port) < 0)
        return error_set(err, -EINVAL,
                         "address '%.120s': expected a port from 0 to 65535 after the colon", text);
    struct sv host = sv_sub(all, 0, colon - 1);
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (bracketed)
        host = sv_sub(host, 1, host.len - 2);
    if (sv_find_char(host, '[') != (size_t)-1 || sv_find_char(host, ']') != (size_t)-1 ||
        (!bracketed && sv_find_char(host, ':') != (size_t)-1))
        return error_set(err, -EINVAL,
                         "address '%.120s': an IPv6 address stands in brackets, as in [::1]:9400",
                         text);
    if (host.len >= sizeof(out->host))
        return error_set(err, -EINVAL, "address '%.120s': the host name is too long", text);
    *out = (struct http_address){.port = (uint16_t)port};
    sv_copy(out->host, sizeof(out->host), host);
    return 0;
}

bool http_host_is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return sv_equals_nocase(sv_from(host), SV("localhost"));
}
