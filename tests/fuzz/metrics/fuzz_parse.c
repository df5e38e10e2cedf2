// SPDX-License-Identifier: Apache-2.0
// Any bytes as a page of either format: what is given out lies within the input, an error has its
// place, labels are readable, and a sample read alone from its raw text is the same.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sv page = {(const char *)data, size};
    check_page(page, PARSE_PROMETHEUS);
    check_page(page, PARSE_OPENMETRICS);
    return 0;
}
