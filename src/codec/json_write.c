// SPDX-License-Identifier: Apache-2.0
// JSON text out, as Go's encoding/json writes it. Runs of bytes that stand for themselves are
// copied at once.
#include <assert.h>
#include <math.h>

#include "base/num.h"
#include "base/num_text.h"
#include "codec/json.h"

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\' && byte != '<' &&
           byte != '>' && byte != '&';
}

static void add_u(struct buf *out, unsigned code)
{
    static const char digits[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', digits[code >> 4 & 15], digits[code & 15]};
    buf_add(out, text, sizeof(text));
}

static void add_ascii(struct buf *out, unsigned char byte)
{
    static const char escapes[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char letter = byte < 0x20 ? escapes[byte] : (char)(byte == '"' || byte == '\\' ? byte : 0);
    if (letter) {
        buf_add_char(out, '\\');
        buf_add_char(out, letter);
    } else {
        add_u(out, byte);
    }
}

// One character that is not plain, at the start of s; how many bytes it has.
static size_t add_special(struct buf *out, struct sv s)
{
    if ((unsigned char)s.ptr[0] < 0x80) {
        add_ascii(out, (unsigned char)s.ptr[0]);
        return 1;
    }
    size_t len = sv_utf8_length(s);
    if (len == 0) {
        buf_add_str(out, "\\ufffd");
        return 1;
    }
    // U+2028 and U+2029 end a line in JavaScript.
    struct sv one = {s.ptr, len};
    if (sv_equals(one, SV("\u2028")))
        buf_add_str(out, "\\u2028");
    else if (sv_equals(one, SV("\u2029")))
        buf_add_str(out, "\\u2029");
    else
        buf_add_sv(out, one);
    return len;
}

void json_add_string(struct buf *out, struct sv s)
{
    buf_add_char(out, '"');
    while (s.len) {
        size_t plain = 0;
        while (plain < s.len && is_plain((unsigned char)s.ptr[plain]))
            plain++;
        buf_add(out, s.ptr, plain);
        s = (struct sv){s.ptr + plain, s.len - plain};
        if (s.len) {
            size_t len = add_special(out, s);
            s = (struct sv){s.ptr + len, s.len - len};
        }
    }
    buf_add_char(out, '"');
}

// Go's encoding/json: fixed from 1e-6, and no zero before a single digit of a negative exponent.
// num_print_double writes an exponent below 1e-4 already, and always two digits of it.
static void add_small(struct buf *out, struct sv text, size_t e)
{
    bool negative = text.ptr[0] == '-';
    struct sv digits = {text.ptr + negative, e - negative};
    unsigned exponent = (unsigned)(text.ptr[e + 2] - '0') * 10 + (unsigned)(text.ptr[e + 3] - '0');
    if (text.len - e > 4 || exponent >= 10) {
        buf_add_sv(out, text);
        return;
    }
    if (negative)
        buf_add_char(out, '-');
    if (exponent > 6) {
        buf_add_sv(out, digits);
        buf_add_fmt(out, "e-%u", exponent);
        return;
    }
    buf_add_sv(out, sv_sub(SV("0.000000"), 0, exponent + 1));
    buf_add(out, digits.ptr, 1);
    if (digits.len > 2)
        buf_add(out, digits.ptr + 2, digits.len - 2);
}

void json_add_number(struct buf *out, double v)
{
    assert(isfinite(v));
    char text[NUM_DOUBLE_BYTES > NUM_I64_BYTES ? NUM_DOUBLE_BYTES : NUM_I64_BYTES];
    if (v > -1e15 && v < 1e15 && v == (double)(int64_t)v && !(v == 0 && signbit(v))) {
        buf_add(out, text, num_print_i64(text, (int64_t)v));
        return;
    }
    struct sv s = {text, num_print_double(text, v)};
    size_t e = sv_find_char(s, 'e');
    if (e == (size_t)-1 || text[e + 1] == '+')
        buf_add_sv(out, s);
    else
        add_small(out, s, e);
}
