// SPDX-License-Identifier: Apache-2.0
// The tokens both formats share. The rules are those of Prometheus' own lexers (model/textparse):
// in the Prometheus format blanks may stand between any two tokens, commas between labels may be
// missing and quoted strings may hold line feeds; OpenMetrics allows none of this.
#include "metrics/parse_internal.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/num.h"

enum {
    BYTE_NAME = 1,   // in a label name
    BYTE_METRIC = 2, // in a metric name
    BYTE_START = 4,  // not a digit
};

static const unsigned char byte_class[256] = {
    ['a' ... 'z'] = BYTE_NAME | BYTE_METRIC | BYTE_START,
    ['A' ... 'Z'] = BYTE_NAME | BYTE_METRIC | BYTE_START,
    ['_'] = BYTE_NAME | BYTE_METRIC | BYTE_START,
    [':'] = BYTE_METRIC | BYTE_START,
    ['0' ... '9'] = BYTE_NAME | BYTE_METRIC,
};

int cursor_expected(const struct cursor *c, const char *expected)
{
    char got[32];
    int byte = cursor_peek(c);
    if (c->at == c->end || byte == '\n')
        (void)snprintf(got, sizeof(got), "the end of the line");
    else if (byte == '\r')
        (void)snprintf(got, sizeof(got), "a carriage return");
    else if (byte >= 0x20 && byte < 0x7f)
        (void)snprintf(got, sizeof(got), "'%c'", byte);
    else
        (void)snprintf(got, sizeof(got), "byte 0x%02x", (unsigned)byte);
    return error_set_at(c->err, -EINVAL, NULL, c->line, (unsigned)(c->at - c->line_start) + 1,
                        "expected %s, got %s", expected, got);
}

static int scan_name(struct cursor *c, unsigned class, const char *expected, struct sv *out)
{
    const char *p = c->at;
    unsigned first = p < c->end ? byte_class[(unsigned char)*p] : 0;
    if (!(first & class) || !(first & BYTE_START))
        return cursor_expected(c, expected);
    while (p < c->end && (byte_class[(unsigned char)*p] & class))
        p++;
    *out = (struct sv){c->at, (size_t)(p - c->at)};
    c->at = p;
    return 0;
}

int scan_metric_name(struct cursor *c, struct sv *out)
{
    return scan_name(c, BYTE_METRIC, "a metric name", out);
}

#define EACH_BYTE(b) ((uint64_t)(b)*0x0101010101010101u)

// The high bit of each zero byte; above the lowest one others may be set.
static uint64_t zero_bytes(uint64_t w)
{
    return (w - EACH_BYTE(1)) & ~w & EACH_BYTE(0x80);
}

static uint64_t load_word(const char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return le64toh(w);
}

// The next quote, backslash or line feed, or end. *high gathers the bytes passed.
static const char *find_special(const char *p, const char *end, uint64_t *high)
{
    for (; end - p >= 8; p += 8) {
        uint64_t w = load_word(p);
        uint64_t found = zero_bytes(w ^ EACH_BYTE('"')) | zero_bytes(w ^ EACH_BYTE('\\')) |
                         zero_bytes(w ^ EACH_BYTE('\n'));
        *high |= w;
        if (found)
            return p + __builtin_ctzll(found) / 8;
    }
    for (; p < end && *p != '"' && *p != '\\' && *p != '\n'; p++)
        *high |= (unsigned char)*p;
    return p;
}

bool scan_is_utf8(struct sv s)
{
    uint64_t high = 0;
    const char *p = s.ptr, *end = s.ptr + s.len;
    for (; end - p >= 8; p += 8)
        high |= load_word(p);
    for (; p < end; p++)
        high |= (unsigned char)*p;
    return !(high & EACH_BYTE(0x80)) || sv_is_utf8(s);
}

int scan_check_utf8(struct cursor start, struct sv s)
{
    while (s.len) {
        size_t length = sv_utf8_length(s);
        start.at = s.ptr;
        if (!length)
            return cursor_expected(&start, "valid UTF-8");
        if (*s.ptr == '\n') {
            start.line++;
            start.line_start = s.ptr + 1;
        }
        s = (struct sv){s.ptr + length, s.len - length};
    }
    return 0;
}

// Passes the backslash at p and what it escapes, or the line feed there.
static int pass_special(struct cursor *c, const char *p)
{
    c->at = p;
    if (p == c->end || (*p == '\n' && c->format == PARSE_OPENMETRICS))
        return cursor_expected(c, "a closing quote");
    c->at++;
    if (*p == '\n') {
        c->line++;
        c->line_start = c->at;
        return 0;
    }
    if (c->at == c->end || *c->at == '\n')
        return cursor_expected(c, "an escaped character");
    c->at++;
    return 0;
}

int scan_string(struct cursor *c, struct sv *out)
{
    const char *start = ++c->at, *line_start = c->line_start;
    unsigned line = c->line;
    uint64_t high = 0;
    for (;;) {
        const char *p = find_special(c->at, c->end, &high);
        if (p < c->end && *p == '"') {
            *out = (struct sv){start, (size_t)(p - start)};
            c->at = p + 1;
            if (!(high & EACH_BYTE(0x80)))
                return 0;
            struct cursor from = *c;
            from.line = line;
            from.line_start = line_start;
            return scan_check_utf8(from, *out);
        }
        if (pass_special(c, p) < 0)
            return -EINVAL;
        if (c->at[-1] & 0x80)
            high |= 0x80;
    }
}

// Up to 15 digits, which a double holds exactly.
static bool short_integer(struct sv s, double *out)
{
    uint64_t value = 0;
    if (!s.len || s.len > 15)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned digit = (unsigned)(unsigned char)s.ptr[i] - '0';
        if (digit > 9)
            return false;
        value = value * 10 + digit;
    }
    *out = (double)value;
    return true;
}

int scan_number(struct cursor *c, const char *expected, double *out)
{
    const char *p = c->at;
    while (p < c->end && *p != ' ' && *p != '\n' && (*p != '\t' || c->format == PARSE_OPENMETRICS))
        p++;
    struct sv s = {c->at, (size_t)(p - c->at)};
    if (!short_integer(s, out)) {
        int r = num_parse_double(s, out);
        if (r == -ERANGE)
            return cursor_expected(c, "a number a double can hold");
        if (r < 0 && !num_parse_special_go(s, out)) {
            struct sv clean = s.len && s.ptr[s.len - 1] == '\r' ? sv_sub(s, 0, s.len - 1) : s;
            if (clean.len < s.len &&
                (num_parse_double(clean, out) == 0 || num_parse_special_go(clean, out)))
                c->at += clean.len; // the number is good: point at what is not
            return cursor_expected(c, c->at == s.ptr ? expected : "a line feed");
        }
    }
    c->at = p;
    return 0;
}

static int scan_entry_name(struct cursor *c, struct sv *out)
{
    if (cursor_peek(c) != '"')
        return scan_name(c, BYTE_NAME, "a label name or '}'", out);
    struct cursor start = *c;
    if (scan_string(c, out) < 0)
        return -EINVAL;
    return out->len ? 0 : cursor_expected(&start, "a name that is not empty");
}

int scan_entry(struct cursor *c, struct sv *out_name, struct sv *out_value)
{
    cursor_skip_blanks(c);
    if (cursor_peek(c) == '}')
        return SCAN_ENTRY_END;
    bool quoted = cursor_peek(c) == '"';
    if (scan_entry_name(c, out_name) < 0)
        return -EINVAL;
    cursor_skip_blanks(c);
    int next = cursor_peek(c);
    if (quoted && (next == ',' || next == '}')) {
        c->at += next == ',';
        return SCAN_ENTRY_NAME;
    }
    if (next != '=')
        return cursor_expected(c, "'='");
    c->at++;
    cursor_skip_blanks(c);
    if (cursor_peek(c) != '"')
        return cursor_expected(c, "a label value in quotes");
    if (scan_string(c, out_value) < 0)
        return -EINVAL;
    cursor_skip_blanks(c);
    next = cursor_peek(c);
    if (next == ',')
        c->at++;
    else if (next != '}' && c->format == PARSE_OPENMETRICS)
        return cursor_expected(c, "',' or '}'");
    return SCAN_ENTRY_PAIR;
}

static bool has_escape(struct sv s)
{
    return s.len && memchr(s.ptr, '\\', s.len);
}

static void add_unescaped(struct buf *out, struct sv raw)
{
    for (size_t i = 0; i < raw.len; i++) {
        char next = i + 1 < raw.len ? raw.ptr[i + 1] : 0;
        bool known = raw.ptr[i] == '\\' && (next == '\\' || next == '"' || next == 'n');
        buf_add_char(out, !known ? raw.ptr[i] : next == 'n' ? '\n' : next);
        i += known;
    }
}

int parse_unescape(struct sv raw, struct buf *scratch, struct sv *out)
{
    *out = raw;
    if (!has_escape(raw))
        return 0;
    buf_reset(scratch);
    add_unescaped(scratch, raw);
    *out = buf_sv(scratch);
    return scratch->error;
}

int parse_next_label(struct sv *rest, struct buf *scratch, struct sv *out_name,
                     struct sv *out_value)
{
    struct cursor c = {.at = rest->ptr, .end = rest->ptr + rest->len, .at_end = '}'};
    int r;
    c.line_start = c.at;
    do
        r = scan_entry(&c, out_name, out_value);
    while (r == SCAN_ENTRY_NAME);
    *rest = (struct sv){c.at, (size_t)(c.end - c.at)};
    if (r == SCAN_ENTRY_END)
        return rest->len ? -EINVAL : 0;
    if (r < 0 || (!has_escape(*out_name) && !has_escape(*out_value)))
        return r < 0 ? r : 1;
    buf_reset(scratch);
    add_unescaped(scratch, *out_name);
    size_t name_bytes = scratch->len;
    add_unescaped(scratch, *out_value);
    *out_name = sv_sub(buf_sv(scratch), 0, name_bytes);
    *out_value = sv_sub(buf_sv(scratch), name_bytes, scratch->len);
    return scratch->error ? scratch->error : 1;
}
