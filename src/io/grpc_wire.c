// SPDX-License-Identifier: Apache-2.0
#include "io/grpc_wire.h"

#include <errno.h>

#include "base/clock.h"
#include "base/num.h"
#include "io/grpc.h"

// --- Body ---

static int take_prefix(struct grpc_body *b, struct sv *piece, const char **what)
{
    while (b->prefix_len < sizeof(b->prefix) && piece->len > 0) {
        b->prefix[b->prefix_len++] = (unsigned char)*piece->ptr;
        *piece = (struct sv){piece->ptr + 1, piece->len - 1};
    }
    if (b->prefix_len > 0 && b->prefix[0] != 0) {
        *what = "compressed message";
        return -EPROTO;
    }
    if (b->prefix_len < sizeof(b->prefix))
        return 0;
    b->left = (uint32_t)b->prefix[1] << 24 | (uint32_t)b->prefix[2] << 16 |
              (uint32_t)b->prefix[3] << 8 | b->prefix[4];
    if (b->left <= b->max_message_bytes)
        return 0;
    *what = "message over the ceiling";
    return -EFBIG;
}

int grpc_body_feed(struct grpc_body *b, struct sv piece, int (*data)(void *user, struct sv piece),
                   void *user, const char **what)
{
    if (grpc_body_is_whole(b) && piece.len > 0) {
        *what = "more than one message";
        return -EPROTO;
    }
    if (b->prefix_len < sizeof(b->prefix)) {
        int r = take_prefix(b, &piece, what);
        if (r < 0)
            return r;
    }
    if (piece.len > b->left) {
        *what = "more than one message";
        return -EPROTO;
    }
    if (piece.len == 0)
        return 0;
    b->left -= (uint32_t)piece.len;
    *what = "message refused";
    return data ? data(user, piece) : 0;
}

bool grpc_body_is_whole(const struct grpc_body *b)
{
    return b->prefix_len == sizeof(b->prefix) && b->left == 0;
}

// --- Text ---

// Undoes %XX; a % that starts none stands for itself. Returns the length, at most out_bytes.
static size_t percent_decode(struct sv raw, char *out, size_t out_bytes)
{
    size_t len = 0;
    for (size_t i = 0; i < raw.len && len < out_bytes; i++) {
        int high = -1, low = -1;
        if (raw.ptr[i] == '%' && raw.len - i > 2) {
            high = num_hex_digit(raw.ptr[i + 1]);
            low = num_hex_digit(raw.ptr[i + 2]);
        }
        if (high < 0 || low < 0) {
            out[len++] = raw.ptr[i];
            continue;
        }
        out[len++] = (char)(high << 4 | low);
        i += 2;
    }
    return len;
}

void grpc_message_decode(struct sv raw, char *out, size_t out_bytes)
{
    char decoded[512];
    size_t len = 0;
    struct sv rest = {decoded, percent_decode(raw, decoded, sizeof(decoded))};
    while (rest.len > 0) {
        size_t character = sv_utf8_length(rest);
        size_t step = character ? character : 1;
        if (step >= out_bytes - len)
            break;
        memcpy(out + len, rest.ptr, step);
        if (!character)
            out[len] = '?';
        else if ((unsigned char)*rest.ptr < ' ' || *rest.ptr == 0x7f)
            out[len] = ' ';
        len += step;
        rest = (struct sv){rest.ptr + step, rest.len - step};
    }
    out[len] = '\0';
}

// --- Status ---

unsigned grpc_status_parse(struct sv text)
{
    uint64_t status;
    if (num_parse_u64(text, 0, INT32_MAX, &status) < 0)
        return GRPC_UNKNOWN;
    return (unsigned)status;
}

unsigned grpc_status_of_http(unsigned http_status)
{
    switch (http_status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

unsigned grpc_status_of_reset(uint32_t http2_error)
{
    // Error codes of RFC 9113, section 7.
    switch (http2_error) {
    case 0x7: // REFUSED_STREAM
        return GRPC_UNAVAILABLE;
    case 0x8: // CANCEL
        return GRPC_CANCELLED;
    case 0xb: // ENHANCE_YOUR_CALM
        return GRPC_RESOURCE_EXHAUSTED;
    default:
        return GRPC_INTERNAL;
    }
}

void grpc_timeout_print(uint64_t timeout_ns, char *out)
{
    const uint64_t most = 99999999; // eight digits
    uint64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    uint64_t s = timeout_ns / NS_PER_S;
    bool in_ms = ms <= most;
    unsigned len = num_print_u64(out, in_ms ? ms : s < most ? s : most);
    out[len] = in_ms ? 'm' : 'S';
    out[len + 1] = '\0';
}
