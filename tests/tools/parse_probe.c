// SPDX-License-Identifier: Apache-2.0
// Reads a page for tests/integration/test_parse.py.
//   parse_probe prometheus|openmetrics   stdin: pages, a NUL behind each; prints one line of JSON
//                                        a page, an array of samples
//                                        [name, {label: value}, value, timestamp_ms or null, type],
//                                        or the error as a string
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "codec/json.h"
#include "metrics/parse.h"
#include "metrics/text.h"

static void add_sample(struct buf *out, struct parse_sample *s, struct buf *scratch)
{
    struct sv name, value;
    buf_add_char(out, '[');
    if (parse_unescape(s->name, scratch, &name) < 0)
        abort();
    json_add_string(out, name);
    buf_add_str(out, ",{");
    while (parse_next_label(&s->labels, scratch, &name, &value) > 0) {
        buf_add_str(out, out->data[out->len - 1] == '{' ? "" : ",");
        json_add_string(out, name);
        buf_add_char(out, ':');
        json_add_string(out, value);
    }
    buf_add_str(out, "},\"");
    text_add_double(out, s->value);
    buf_add_str(out, "\",");
    if (s->has_timestamp)
        buf_add_i64(out, s->timestamp_ms);
    else
        buf_add_str(out, "null");
    buf_add_fmt(out, ",\"%s\"]", parse_type_text(s->type));
}

static void print_page(struct sv page, enum parse_format format)
{
    struct buf out = BUF_INIT(1u << 24), scratch = BUF_INIT(1u << 20);
    struct parser p;
    struct parse_sample s;
    struct error err = ERROR_INIT;
    char text[1024];
    int r;
    parser_init(&p, page, format);
    while ((r = parser_next(&p, &s, &err)) > 0) {
        buf_add_char(&out, out.len ? ',' : '[');
        add_sample(&out, &s, &scratch);
    }
    buf_add_str(&out, out.len ? "]" : "[]");
    if (r < 0) {
        buf_reset(&out);
        json_add_string(&out, sv_from(error_text(&err, text, sizeof(text))));
    }
    puts(buf_cstr(&out));
    parser_deinit(&p);
    buf_deinit(&out);
    buf_deinit(&scratch);
}

int main(int argc, char **argv)
{
    struct buf in = BUF_INIT(1u << 24);
    char piece[4096];
    if (argc != 2)
        return 2;
    bool openmetrics = strcmp(argv[1], "openmetrics") == 0;
    for (size_t n; (n = fread(piece, 1, sizeof(piece), stdin)) > 0;)
        buf_add(&in, piece, n);
    struct sv rest = buf_sv(&in), page;
    while (sv_next(&rest, '\0', &page))
        print_page(page, openmetrics ? PARSE_OPENMETRICS : PARSE_PROMETHEUS);
    buf_deinit(&in);
    return 0;
}
