// SPDX-License-Identifier: Apache-2.0
#include "metrics/text.h"

#include <math.h>

#include "base/limits.h"
#include "base/num.h"
#include "base/num_text.h"

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD

const char *text_content_type(enum text_format f)
{
    static const char *const types[TEXT_FORMAT_COUNT] = {
        "text/plain; version=0.0.4; charset=utf-8",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };
    return types[f];
}

const char *text_type_name(enum text_type t, enum text_format f)
{
    switch (t) {
    case TEXT_TYPE_GAUGE:
        return "gauge";
    case TEXT_TYPE_COUNTER:
        return "counter";
    case TEXT_TYPE_HISTOGRAM:
        return "histogram";
    case TEXT_TYPE_SUMMARY:
        return "summary";
    case TEXT_TYPE_UNTYPED:
        return f == TEXT_FORMAT_OPENMETRICS ? "unknown" : "untyped";
    case TEXT_TYPE_INFO:
        return f == TEXT_FORMAT_OPENMETRICS ? "info" : "gauge";
    }
    return "untyped";
}

// Copies runs that need nothing; escapes and repairs the rest.
static void add_escaped(struct buf *out, struct sv s, bool quotes)
{
    while (s.len) {
        size_t plain = 0, length = 1;
        while (plain < s.len) {
            char c = s.ptr[plain];
            if (c == '\\' || c == '\n' || (c == '"' && quotes))
                break;
            length = sv_utf8_length(sv_sub(s, plain, s.len));
            if (!length)
                break;
            plain += length;
        }
        buf_add(out, s.ptr, plain);
        s = sv_sub(s, plain, s.len);
        if (!s.len)
            return;
        if (!length)
            buf_add_str(out, REPLACEMENT);
        else
            buf_add_str(out, s.ptr[0] == '\n' ? "\\n" : s.ptr[0] == '"' ? "\\\"" : "\\\\");
        s = sv_sub(s, 1, s.len);
    }
}

void text_add_label_value(struct buf *out, struct sv value)
{
    add_escaped(out, sv_cut(value, LIMIT_LABEL_VALUE_BYTES), true);
}

void text_add_help(struct buf *out, enum text_format f, struct sv help)
{
    add_escaped(out, help, f == TEXT_FORMAT_OPENMETRICS);
}

void text_add_label(struct buf *out, const char *name, struct sv value)
{
    if (!out->len || out->data[out->len - 1] != '{')
        buf_add_char(out, ',');
    buf_add_str(out, name);
    buf_add_sv(out, SV("=\""));
    text_add_label_value(out, value);
    buf_add_char(out, '"');
}

static void add_type_line(struct buf *out, struct sv name, const char *type)
{
    buf_add_sv(out, SV("# TYPE "));
    buf_add_sv(out, name);
    buf_add_char(out, ' ');
    buf_add_str(out, type);
    buf_add_char(out, '\n');
}

static void add_help_line(struct buf *out, enum text_format f, struct sv name, struct sv help)
{
    buf_add_sv(out, SV("# HELP "));
    buf_add_sv(out, name);
    buf_add_char(out, ' ');
    text_add_help(out, f, help);
    buf_add_char(out, '\n');
}

// OpenMetrics 1.0, "Suffixes": samples of a counter end in _total and those of an info in _info,
// which is not part of the family's name. A family that cannot keep this rule is exposed under a
// type that has none.
static void openmetrics_family(struct sv *name, enum text_type *type)
{
    struct sv suffix = *type == TEXT_TYPE_COUNTER ? SV("_total") : SV("_info");
    if (*type != TEXT_TYPE_COUNTER && *type != TEXT_TYPE_INFO)
        return;
    if (name->len > suffix.len && sv_ends_with(*name, suffix))
        name->len -= suffix.len;
    else
        *type = *type == TEXT_TYPE_COUNTER ? TEXT_TYPE_UNTYPED : TEXT_TYPE_GAUGE;
}

void text_add_family(struct buf *out, enum text_format f, struct sv name, enum text_type type,
                     struct sv help)
{
    if (f == TEXT_FORMAT_OPENMETRICS) {
        openmetrics_family(&name, &type);
        add_type_line(out, name, text_type_name(type, f));
        add_help_line(out, f, name, help);
        return;
    }
    add_help_line(out, f, name, help);
    add_type_line(out, name, text_type_name(type, f));
}

// Words for what has no digits; false when v has some.
static bool add_non_finite(struct buf *out, double v)
{
    if (isfinite(v))
        return false;
    buf_add_str(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
    return true;
}

#define F6_SCALE 1000000
#define F6_FAST_BELOW 1e12 // whole part and millionths together stay below 2^63

// |v| in millionths, rounded as printf does: exactly, ties to even. p + error is the exact product,
// so comparing p's fraction less one half with -error compares exactly.
static uint64_t to_millionths(double v)
{
    double whole = floor(v);
    double fraction = v - whole; // exact below 2^53
    double p = fraction * F6_SCALE;
    double error = fma(fraction, F6_SCALE, -p);
    double down = floor(p);
    double above_half = (p - down) - 0.5;
    uint64_t millionths = (uint64_t)down;
    if (above_half > -error || (above_half == -error && millionths % 2))
        millionths++;
    return (uint64_t)whole * F6_SCALE + millionths;
}

void text_add_f6(struct buf *out, double v)
{
    if (add_non_finite(out, v))
        return;
    double magnitude = fabs(v);
    if (magnitude >= F6_FAST_BELOW) {
        buf_add_fmt(out, "%f", v);
        return;
    }
    if (signbit(v))
        buf_add_char(out, '-');
    text_add_fixed(out, to_millionths(magnitude), 6);
}

void text_add_double(struct buf *out, double v)
{
    char text[NUM_DOUBLE_BYTES];
    buf_add(out, text, num_print_double(text, v));
}

void text_add_fixed(struct buf *out, uint64_t units, unsigned decimals)
{
    char digits[NUM_U64_BYTES];
    unsigned len = num_print_u64(digits, units);
    if (!decimals) {
        buf_add(out, digits, len);
        return;
    }
    unsigned whole = len > decimals ? len - decimals : 0;
    if (whole)
        buf_add(out, digits, whole);
    else
        buf_add_char(out, '0');
    buf_add_char(out, '.');
    for (unsigned i = len - whole; i < decimals; i++)
        buf_add_char(out, '0');
    buf_add(out, digits + whole, len - whole);
}

// Millionths without trailing zeros: 0.1, 1 or 1.0.
static void add_bound(struct buf *out, enum text_format f, uint32_t ppm)
{
    text_add_fixed(out, ppm, 6);
    if (out->error)
        return;
    size_t least = out->len - 5; // what a float needs: the first decimal
    while (out->len > least && out->data[out->len - 1] == '0')
        out->len--;
    if (f == TEXT_FORMAT_PROMETHEUS && out->len == least && out->data[out->len - 1] == '0')
        out->len -= 2;
}

static void begin_histogram_line(struct buf *out, struct sv name, const char *suffix,
                                 struct sv labels)
{
    buf_add_sv(out, name);
    buf_add_str(out, suffix);
    buf_add_sv(out, labels);
}

static void add_bucket(struct buf *out, enum text_format f, const uint32_t *bound, uint64_t count)
{
    buf_add_str(out, "le=\"");
    if (bound)
        add_bound(out, f, *bound);
    else
        buf_add_str(out, "+Inf");
    buf_add_str(out, "\"} ");
    buf_add_u64(out, count);
    buf_add_char(out, '\n');
}

void text_add_histogram(struct buf *out, enum text_format f, struct sv name, struct sv labels,
                        const struct text_histogram *h)
{
    uint64_t count = 0;
    const char *end = labels.len ? "} " : " ";
    for (size_t i = 0; i <= h->bound_count; i++) {
        count += h->counts[i];
        begin_histogram_line(out, name, "_bucket", labels);
        buf_add_char(out, labels.len ? ',' : '{');
        add_bucket(out, f, i < h->bound_count ? &h->bounds_ppm[i] : NULL, count);
    }
    begin_histogram_line(out, name, "_sum", labels);
    buf_add_str(out, end);
    text_add_fixed(out, h->sum_millionths, 6);
    buf_add_char(out, '\n');
    begin_histogram_line(out, name, "_count", labels);
    buf_add_str(out, end);
    buf_add_u64(out, count);
    buf_add_char(out, '\n');
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void text_add_sanitised_name(struct buf *out, struct sv raw)
{
    if (raw.len && is_digit(raw.ptr[0]))
        buf_add_char(out, '_');
    for (size_t i = 0; i < raw.len; i++)
        buf_add_char(out, is_letter(raw.ptr[i]) || is_digit(raw.ptr[i]) ? raw.ptr[i] : '_');
}

static bool is_name(struct sv s, bool colons)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!is_letter(c) && !(i && is_digit(c)) && !(colons && c == ':'))
            return false;
    }
    return s.len > 0;
}

bool text_is_metric_name(struct sv s)
{
    return is_name(s, true);
}

bool text_is_label_name(struct sv s)
{
    return is_name(s, false);
}
