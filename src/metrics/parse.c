// SPDX-License-Identifier: Apache-2.0
// A page is read line by line; the parser moves only behind a line that was good, so an error
// repeats when asked again. What is accepted is what Prometheus 3 accepts (model/textparse), with
// these differences: leading blanks, and several blanks around a type, are passed over as the
// format asks; a name must not touch its value ("a-1"); a NUL does not end the page.
#include "metrics/parse_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/num.h"

static const struct {
    struct sv text;
    bool prometheus, openmetrics;
} types[] = {
    [PARSE_TYPE_NONE] = {{"", 0}, false, false},
    [PARSE_TYPE_COUNTER] = {{"counter", 7}, true, true},
    [PARSE_TYPE_GAUGE] = {{"gauge", 5}, true, true},
    [PARSE_TYPE_HISTOGRAM] = {{"histogram", 9}, true, true},
    [PARSE_TYPE_SUMMARY] = {{"summary", 7}, true, true},
    [PARSE_TYPE_UNKNOWN] = {{"unknown", 7}, false, true},
    [PARSE_TYPE_INFO] = {{"info", 4}, false, true},
    [PARSE_TYPE_STATESET] = {{"stateset", 8}, false, true},
    [PARSE_TYPE_GAUGEHISTOGRAM] = {{"gaugehistogram", 14}, false, true},
};

const char *parse_type_text(enum parse_type t)
{
    return types[t == PARSE_TYPE_NONE ? PARSE_TYPE_UNKNOWN : t].text.ptr;
}

void parser_init(struct parser *p, struct sv text, enum parse_format format)
{
    *p = (struct parser){.rest = text, .format = format, .line = 1};
}

void parser_deinit(struct parser *p)
{
    free(p->families);
    free(p->slots);
    *p = (struct parser){0};
}

static int find_type(struct sv text, enum parse_format format)
{
    if (format == PARSE_PROMETHEUS && sv_equals(text, SV("untyped")))
        return PARSE_TYPE_UNKNOWN;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        bool known = format == PARSE_PROMETHEUS ? types[i].prometheus : types[i].openmetrics;
        if (known && sv_equals(text, types[i].text))
            return (int)i;
    }
    return -EINVAL;
}

static int take_type(struct parser *p, const struct cursor *c, struct sv family, struct sv text)
{
    if (c->format == PARSE_PROMETHEUS)
        text = sv_trim(text, " \t");
    struct cursor at = *c;
    at.at = text.ptr;
    int type = find_type(text, c->format);
    if (type < 0 && text.len && text.ptr[text.len - 1] == '\r') {
        at.at += text.len - 1;
        return cursor_expected(&at, "a line feed");
    }
    if (type < 0)
        return cursor_expected(&at, "a metric type");
    int r = parse_family_put(p, family, (enum parse_type)type);
    if (r == -E2BIG)
        return error_set_at(c->err, r, NULL, c->line, 1, "more than %u metric families",
                            LIMIT_PARSE_FAMILIES);
    return r < 0 ? error_set(c->err, r, "out of memory") : 0;
}

// OpenMetrics: a unit is the end of its family's name.
static int check_unit(const struct cursor *c, struct sv family, struct sv unit)
{
    if (!unit.len || (family.len > unit.len && sv_ends_with(family, unit) &&
                      family.ptr[family.len - unit.len - 1] == '_'))
        return 0;
    struct cursor at = *c;
    at.at = unit.ptr;
    return cursor_expected(&at, "the unit the metric name ends in");
}

static int take_family_name(struct cursor *c, struct sv *out)
{
    cursor_skip_blanks(c);
    if (cursor_peek(c) != '"')
        return scan_metric_name(c, out);
    return scan_string(c, out);
}

// The name and text behind "# HELP " and its like; the cursor ends with the line.
static int take_metadata(struct parser *p, struct cursor *c, struct sv keyword)
{
    struct sv family;
    if (take_family_name(c, &family) < 0)
        return -EINVAL;
    bool is_type = sv_equals(keyword, SV("TYPE"));
    int next = cursor_peek(c);
    if (c->format == PARSE_OPENMETRICS && next != ' ')
        return cursor_expected(c, "a space");
    if (is_type && next != ' ' && next != '\t')
        return cursor_expected(c, "a metric type");
    c->at += c->at < c->end;
    struct sv text = {c->at, (size_t)(c->end - c->at)};
    if (is_type)
        return take_type(p, c, family, text);
    if (sv_equals(keyword, SV("UNIT")))
        return check_unit(c, family, text);
    c->at = text.ptr;
    return scan_is_utf8(text) ? 0 : scan_check_utf8(*c, text);
}

static void next_line(struct cursor *c, const char *line_end)
{
    c->at = line_end < c->end ? line_end + 1 : c->end;
    c->line_start = c->at;
    c->line++;
}

static const char *find_line_end(const struct cursor *c)
{
    const char *found = memchr(c->at, '\n', (size_t)(c->end - c->at));
    return found ? found : c->end;
}

static bool is_keyword(struct sv line, struct sv keyword, enum parse_format format)
{
    if (!sv_starts_with(line, keyword) || line.len == keyword.len)
        return false;
    char next = line.ptr[keyword.len];
    return next == ' ' || (next == '\t' && format == PARSE_PROMETHEUS);
}

// At the '#'. In the Prometheus format all but HELP and TYPE is a comment.
static int take_comment_prometheus(struct parser *p, struct cursor *c)
{
    const char *line_end = find_line_end(c);
    struct cursor in = *c;
    in.end = line_end;
    in.at++;
    const char *behind = in.at;
    cursor_skip_blanks(&in);
    struct sv line = {in.at, (size_t)(in.end - in.at)};
    struct sv keyword = {in.at, 4};
    int r = 0;
    if (in.at > behind &&
        (is_keyword(line, SV("HELP"), c->format) || is_keyword(line, SV("TYPE"), c->format))) {
        in.at += keyword.len;
        r = take_metadata(p, &in, keyword);
    }
    if (r == 0)
        next_line(c, line_end);
    return r;
}

// Behind "# EOF". 0.
static int take_eof(struct parser *p, struct cursor *c)
{
    if (cursor_peek(c) == '\n')
        next_line(c, c->at);
    if (c->at < c->end)
        return cursor_expected(c, "nothing behind # EOF");
    p->eof_seen = true;
    return 0;
}

static int take_comment_openmetrics(struct parser *p, struct cursor *c)
{
    static const struct sv words[] = {{"HELP", 4}, {"TYPE", 4}, {"UNIT", 4}};
    const char *line_end = find_line_end(c);
    struct sv line = {c->at, (size_t)(line_end - c->at)};
    if (sv_starts_with(line, SV("# EOF"))) {
        c->at += 5;
        return take_eof(p, c);
    }
    struct cursor in = *c;
    in.end = line_end;
    in.at += sv_starts_with(line, SV("# ")) ? 2 : 1;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (!is_keyword(sv_sub(line, 2, line.len), words[i], c->format) || line.ptr[1] != ' ')
            continue;
        in.at += words[i].len + 1;
        int r = take_metadata(p, &in, words[i]);
        if (r == 0 && line_end == c->end) {
            in.at = line_end;
            return cursor_expected(&in, "a line feed");
        }
        if (r == 0)
            next_line(c, line_end);
        return r;
    }
    return cursor_expected(&in, "HELP, TYPE, UNIT or EOF behind \"# \"");
}

// Samples of one object often follow each other: their labels are compared, not read again.
static bool skip_known_labels(struct cursor *c)
{
    size_t len = c->known_labels.len;
    if (!len || (size_t)(c->end - c->at) <= len || c->at[len] != '}' ||
        memcmp(c->at, c->known_labels.ptr, len) != 0)
        return false;
    c->at += len;
    return true;
}

// Up to the closing brace. The metric name may stand there.
static int take_labels(struct cursor *c, struct sv *metric_name)
{
    if (metric_name->len && skip_known_labels(c))
        return 0;
    for (;;) {
        struct sv name, value;
        const char *entry = c->at, *line_start = c->line_start;
        unsigned line = c->line;
        int r = scan_entry(c, &name, &value);
        if (r == SCAN_ENTRY_PAIR)
            continue;
        if (r < 0)
            return r;
        if (r == SCAN_ENTRY_END)
            break;
        if (metric_name->len) {
            c->at = entry;
            c->line = line;
            c->line_start = line_start; // the string may hold line feeds
            return cursor_expected(c, "one metric name");
        }
        *metric_name = name;
    }
    return metric_name->len ? 0 : cursor_expected(c, "a metric name in quotes");
}

// A text that ends with its closing brace ends there in whatever line it begins. One without labels
// might be the start of a longer name, or have its brace behind a blank.
static bool ends_at(const struct cursor *c, const char *end)
{
    if (end[0] != ' ')
        return false;
    return end[-1] == '}' || (end + 1 < c->end && end[1] != ' ' && end[1] != '\t' && end[1] != '{');
}

static bool take_known_series(struct cursor *c, struct parse_sample *out)
{
    const struct parse_memory *m = c->memory;
    size_t bytes = m->likely_bytes;
    if (!bytes || (size_t)(c->end - c->at) <= bytes || !ends_at(c, c->at + bytes) ||
        !m->knows(m->user, (struct sv){c->at, bytes}))
        return false;
    *out = (struct parse_sample){
        .line = c->line, .series = {c->at, bytes}, .name = {c->at, bytes}, .labels = {"", 0}};
    c->at += bytes;
    if (c->at[-1] != '}')
        return true;
    size_t brace = sv_find_char(out->series, '{');
    out->labels = sv_sub(out->series, brace + 1, bytes - brace - 2);
    out->name.len = brace;
    while (out->name.ptr[out->name.len - 1] == ' ' || out->name.ptr[out->name.len - 1] == '\t')
        out->name.len--;
    return true;
}

// Name and labels. The name may be the quoted string between the braces.
static int take_series(struct cursor *c, struct parse_sample *out)
{
    const char *start = c->at;
    if (take_known_series(c, out))
        return 0;
    *out = (struct parse_sample){.line = c->line, .labels = {"", 0}};
    if (cursor_peek(c) != '{' && scan_metric_name(c, &out->name) < 0)
        return -EINVAL;
    out->series = (struct sv){start, (size_t)(c->at - start)};
    cursor_skip_blanks(c);
    if (cursor_peek(c) != '{')
        return 0;
    const char *open = ++c->at;
    if (take_labels(c, &out->name) < 0)
        return -EINVAL;
    out->labels = (struct sv){open, (size_t)(c->at - open)};
    c->at++;
    out->series.len = (size_t)(c->at - start);
    return 0;
}

static int take_line_feed(struct cursor *c, const char *expected)
{
    if (cursor_peek(c) != '\n' && (c->at < c->end || c->format == PARSE_OPENMETRICS))
        return cursor_expected(c, expected);
    next_line(c, c->at);
    return 0;
}

// Value, optional timestamp in milliseconds.
static int take_sample_prometheus(struct cursor *c, struct parse_sample *out)
{
    if (take_series(c, out) < 0)
        return -EINVAL;
    const char *behind_series = out->series.ptr + out->series.len;
    cursor_skip_blanks(c);
    if (c->at == behind_series && c->at < c->end && *c->at != '\n' && c->at[-1] != '}')
        return cursor_expected(c, "a space or '{'");
    if (scan_number(c, "a value", &out->value) < 0)
        return -EINVAL;
    cursor_skip_blanks(c);
    const char *digits = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
        c->at++;
    struct sv stamp = {digits, (size_t)(c->at - digits)};
    out->has_timestamp = stamp.len > 0;
    if (stamp.len && num_parse_i64(stamp, INT64_MIN, INT64_MAX, &out->timestamp_ms) < 0) {
        c->at = digits;
        return cursor_expected(c, "a timestamp of 64 bits");
    }
    cursor_skip_blanks(c);
    return take_line_feed(c, stamp.len ? "a line feed" : "a timestamp or a line feed");
}

static int take_seconds(struct cursor *c, int64_t *out_ms)
{
    struct cursor start = *c;
    double seconds;
    if (scan_number(c, "a timestamp", &seconds) < 0)
        return -EINVAL;
    double ms = seconds * 1000;
    if (!(ms > -0x1p63 && ms < 0x1p63))
        return cursor_expected(&start, "a timestamp of 64 bits");
    *out_ms = (int64_t)ms;
    return 0;
}

static int take_space(struct cursor *c, const char *expected)
{
    if (cursor_peek(c) != ' ')
        return cursor_expected(c, expected);
    c->at++;
    return 0;
}

// Behind " # {": checked and forgotten.
static int skip_exemplar(struct cursor *c)
{
    struct sv name, value;
    double number;
    int64_t stamp;
    int r;
    do {
        r = scan_entry(c, &name, &value);
        if (r < 0)
            return r;
        if (r == SCAN_ENTRY_NAME) {
            c->at -= c->at[-1] == ',';
            return cursor_expected(c, "'='");
        }
    } while (r != SCAN_ENTRY_END);
    c->at++;
    if (take_space(c, "a space and the exemplar's value") < 0 ||
        scan_number(c, "the exemplar's value", &number) < 0)
        return -EINVAL;
    if (cursor_peek(c) != ' ')
        return 0;
    c->at++;
    return take_seconds(c, &stamp);
}

static bool at_exemplar(const struct cursor *c)
{
    return c->end - c->at >= 4 && memcmp(c->at, " # {", 4) == 0;
}

static int take_sample_openmetrics(struct cursor *c, struct parse_sample *out)
{
    if (take_series(c, out) < 0 || take_space(c, "a space and the value") < 0 ||
        scan_number(c, "a value", &out->value) < 0)
        return -EINVAL;
    if (cursor_peek(c) == ' ' && !at_exemplar(c)) {
        c->at++;
        if (take_seconds(c, &out->timestamp_ms) < 0)
            return -EINVAL;
        out->has_timestamp = true;
    }
    if (at_exemplar(c)) {
        c->at += 4;
        if (skip_exemplar(c) < 0)
            return -EINVAL;
    }
    return take_line_feed(c, "a line feed");
}

// One line. 1: a sample; 0: something else; -EINVAL, -E2BIG, -ENOMEM.
static int take_line(struct parser *p, struct cursor *c, struct parse_sample *out)
{
    bool openmetrics = c->format == PARSE_OPENMETRICS;
    cursor_skip_blanks(c);
    int first = cursor_peek(c);
    if (first == '#')
        return openmetrics ? take_comment_openmetrics(p, c) : take_comment_prometheus(p, c);
    if (!openmetrics && (first == '\n' || first < 0)) {
        next_line(c, c->at);
        return 0;
    }
    if (first == '\r' || first == '\n')
        return cursor_expected(c, "a sample");
    if ((openmetrics ? take_sample_openmetrics(c, out) : take_sample_prometheus(c, out)) < 0)
        return -EINVAL;
    if (!sv_equals(out->name, p->last_name)) {
        p->last_type = parse_family_type(p, out->name);
        p->last_name = out->name;
    }
    out->type = p->last_type;
    // Not with a name among them, nor with line feeds, which have to be counted.
    bool plain = out->name.ptr == out->series.ptr && c->line == out->line + 1;
    p->last_labels = plain ? out->labels : (struct sv){"", 0};
    c->known_labels = p->last_labels;
    return 1;
}

int parser_next(struct parser *p, struct parse_sample *out, struct error *err)
{
    struct cursor c = {.at = p->rest.ptr,
                       .end = p->rest.ptr + p->rest.len,
                       .line_start = p->rest.ptr,
                       .line = p->line,
                       .at_end = -1,
                       .format = p->format,
                       .known_labels = p->last_labels,
                       .memory = &p->memory,
                       .err = err};
    struct parse_sample sample;
    while (c.at < c.end) {
        int r = take_line(p, &c, &sample);
        if (r < 0)
            return r;
        p->rest = (struct sv){c.at, (size_t)(c.end - c.at)};
        p->line = c.line;
        if (r > 0) {
            *out = sample;
            return r;
        }
    }
    if (p->format == PARSE_OPENMETRICS && !p->eof_seen)
        return cursor_expected(&c, "# EOF");
    return 0;
}
