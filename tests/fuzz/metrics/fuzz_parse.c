// SPDX-License-Identifier: Apache-2.0
// Any bytes as a page of either format: what is given out lies within the input, an error has its
// place, labels are readable, and a sample read alone from its raw text is the same, as is one that
// the parser is told to know.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "metrics/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_within(struct sv part, struct sv whole)
{
    assert(!part.len || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len));
}

static void check_labels(const struct parse_sample *s, struct buf *scratch)
{
    struct sv rest = s->labels, name, value;
    size_t left = rest.len;
    int r;
    while ((r = parse_next_label(&rest, scratch, &name, &value)) > 0) {
        assert(name.len && rest.len < left && sv_is_utf8(name) && sv_is_utf8(value));
        left = rest.len;
    }
    assert(r == 0 || r == -EFBIG);
    assert(parse_unescape(s->name, scratch, &name) == 0);
    assert(name.len && sv_is_utf8(name));
}

static void check_alone(const struct parse_sample *s, enum parse_format format)
{
    struct buf line = BUF_INIT(1u << 20);
    struct parser p;
    struct parse_sample again;
    buf_add_sv(&line, s->series);
    buf_add_str(&line, " 1\n");
    parser_init(&p, buf_sv(&line), format);
    int r = parser_next(&p, &again, NULL);
    assert(line.error || (r == 1 && sv_equals(again.series, s->series) &&
                          sv_equals(again.name, s->name) && sv_equals(again.labels, s->labels)));
    parser_deinit(&p);
    buf_deinit(&line);
}

static void check_page(struct sv page, enum parse_format format)
{
    struct buf scratch = BUF_INIT(1u << 20);
    struct parser p;
    struct parse_sample s;
    struct error err = ERROR_INIT;
    unsigned line = 0;
    int r;
    parser_init(&p, page, format);
    while ((r = parser_next(&p, &s, &err)) > 0) {
        check_within(s.series, page);
        check_within(s.name, s.series);
        check_within(s.labels, s.series);
        assert(s.line > line && s.line < p.line);
        line = s.line;
        check_labels(&s, &scratch);
        check_alone(&s, format);
    }
    if (r < 0)
        assert(err.code == r && err.line >= p.line && err.column && err.column <= page.len + 1 &&
               err.text[0]);
    else
        assert(!p.rest.len && p.eof_seen == (format == PARSE_OPENMETRICS));
    parser_deinit(&p);
    buf_deinit(&scratch);
}

#define REMEMBERED 64

// The first series of a page whose text may be told to a parser.
struct memory {
    struct sv series[REMEMBERED];
    size_t count, likely;
};

static bool knows(void *user, struct sv text)
{
    const struct memory *m = user;
    return sv_equals(m->series[m->likely], text);
}

static void remember(struct memory *m, struct sv page, enum parse_format format)
{
    struct parser p;
    struct parse_sample s;
    parser_init(&p, page, format);
    while (m->count < REMEMBERED && parser_next(&p, &s, NULL) > 0) {
        if (s.name.ptr == s.series.ptr && !memchr(s.series.ptr, '\n', s.series.len))
            m->series[m->count++] = s.series;
    }
    parser_deinit(&p);
}

// Beside a parser that knows nothing. Step 0 guesses the same series each time, 1 one after the
// other.
static void check_memory(struct sv page, enum parse_format format, struct memory *m, size_t step)
{
    struct parser plain, knowing;
    struct parse_sample a, b;
    int r;
    m->likely = 0;
    parser_init(&plain, page, format);
    parser_init(&knowing, page, format);
    do {
        m->likely = (m->likely + step) % m->count;
        knowing.memory = (struct parse_memory){m->series[m->likely].len, knows, m};
        r = parser_next(&plain, &a, NULL);
        assert(parser_next(&knowing, &b, NULL) == r);
        assert(r != 1 ||
               (sv_equals(a.series, b.series) && sv_equals(a.name, b.name) &&
                sv_equals(a.labels, b.labels) && a.type == b.type && a.line == b.line &&
                a.series.ptr == b.series.ptr && memcmp(&a.value, &b.value, sizeof(a.value)) == 0 &&
                a.has_timestamp == b.has_timestamp && knowing.line == plain.line));
    } while (r == 1);
    assert(knowing.rest.ptr == plain.rest.ptr);
    parser_deinit(&plain);
    parser_deinit(&knowing);
}

static void check_memories(struct sv page, enum parse_format format)
{
    struct memory m = {.count = 0};
    remember(&m, page, format);
    for (size_t step = 0; m.count && step < 2; step++)
        check_memory(page, format, &m, step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sv page = {(const char *)data, size};
    check_page(page, PARSE_PROMETHEUS);
    check_page(page, PARSE_OPENMETRICS);
    check_memories(page, PARSE_PROMETHEUS);
    check_memories(page, PARSE_OPENMETRICS);
    return 0;
}
