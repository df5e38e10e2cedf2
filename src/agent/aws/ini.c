// SPDX-License-Identifier: Apache-2.0
// Line by line; each gives at most one entry. `indent` is that of the last setting, so that what is
// indented deeper is known to belong to it.
#include "agent/aws/ini.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"

#define BLANK " \t\r"

struct reader {
    struct ini *ini;
    const char *file;
    struct error *err;
    struct sv section;
    unsigned line;
    bool has_section, has_key;
    size_t indent; // of the last setting
};

static int fail(const struct reader *r, unsigned column, const char *text)
{
    return error_set_at(r->err, -EINVAL, r->file, r->line, column, "%s", text);
}

static int add(struct reader *r, struct sv key, struct sv value)
{
    struct ini *i = r->ini;
    if (i->count == LIMIT_AWS_FILE_LINES)
        return error_set_at(r->err, -EFBIG, r->file, r->line, 0, "more than %d settings",
                            LIMIT_AWS_FILE_LINES);
    if (i->count == i->capacity) {
        size_t capacity = i->capacity ? i->capacity * 2 : 16;
        struct ini_line *lines = reallocarray(i->lines, capacity, sizeof(*lines));
        if (!lines)
            return error_set(r->err, -ENOMEM, "out of memory");
        i->lines = lines;
        i->capacity = capacity;
    }
    i->lines[i->count++] = (struct ini_line){r->section, key, value, r->line};
    return 0;
}

// Up to a comment: # or ; behind a blank.
static struct sv without_comment(struct sv s)
{
    for (size_t i = 1; i < s.len; i++)
        if ((s.ptr[i] == '#' || s.ptr[i] == ';') && (s.ptr[i - 1] == ' ' || s.ptr[i - 1] == '\t'))
            return sv_sub(s, 0, i);
    return s;
}

static int read_section(struct reader *r, struct sv text)
{
    size_t end = sv_find_char(text, ']');
    if (end == (size_t)-1)
        return fail(r, 1, "expected ']' at the end of a section's name");
    struct sv rest = sv_trim(sv_sub(text, end + 1, text.len), BLANK);
    if (rest.len > 0 && rest.ptr[0] != '#' && rest.ptr[0] != ';')
        return fail(r, (unsigned)end + 2, "expected the end of the line behind ']'");
    r->section = sv_trim(sv_sub(text, 1, end - 1), BLANK);
    r->has_section = true;
    r->has_key = false;
    return add(r, SV(""), SV(""));
}

static size_t find_separator(struct sv text)
{
    size_t at = 0;
    while (at < text.len && text.ptr[at] != '=' && text.ptr[at] != ':')
        at++;
    return at;
}

static int read_setting(struct reader *r, struct sv text, size_t indent)
{
    size_t at = find_separator(text);
    if (at == text.len)
        return fail(r, (unsigned)indent + 1, "expected 'key = value', a [section] or a comment");
    struct sv key = sv_trim(sv_sub(text, 0, at), BLANK);
    if (key.len == 0)
        return fail(r, (unsigned)indent + 1, "expected a key before '='");
    if (!r->has_section)
        return fail(r, (unsigned)indent + 1, "expected a [section] before the first setting");
    r->has_key = true;
    r->indent = indent;
    return add(r, key, sv_trim(without_comment(sv_sub(text, at + 1, text.len)), BLANK));
}

static int read_line(struct reader *r, struct sv line)
{
    struct sv text = sv_trim(line, BLANK);
    if (text.len == 0 || text.ptr[0] == '#' || text.ptr[0] == ';')
        return 0;
    if (sv_find_char(text, '\0') != (size_t)-1)
        return fail(r, 0, "expected text, found a NUL character");
    size_t indent = (size_t)(text.ptr - line.ptr);
    if (r->has_key && indent > r->indent)
        return 0;
    if (text.ptr[0] == '[')
        return read_section(r, text);
    return read_setting(r, text, indent);
}

int ini_parse(struct sv text, const char *file, struct ini *out, struct error *err)
{
    struct ini ini = {0};
    struct reader r = {.ini = &ini, .file = file, .err = err};
    if (sv_starts_with(text, SV("\xef\xbb\xbf")))
        text = sv_sub(text, 3, text.len);
    int result = 0;
    struct sv line;
    while (result == 0 && text.len > 0 && sv_next(&text, '\n', &line)) {
        r.line++;
        result = read_line(&r, line);
    }
    if (result < 0)
        ini_deinit(&ini);
    else
        *out = ini;
    return result;
}

void ini_deinit(struct ini *i)
{
    free(i->lines);
    *i = (struct ini){0};
}
