// SPDX-License-Identifier: Apache-2.0
// A reference takes the longest name there is, so "$1x" is the group "1x", which no pattern has.
// What is no reference stays as it stands. References to groups that the pattern has not are
// dropped when the template is read.
#include "agent/relabel_template.h"

#include <errno.h>

struct reader {
    struct sv rest;
    const struct regex *regex;
    struct relabel_template *out;
    struct arena *arena;
    size_t capacity;
};

static int add_piece(struct reader *r, int group, struct sv text)
{
    if (group < 0 && text.len == 0)
        return 0;
    struct relabel_template *t = r->out;
    if (t->count == r->capacity) {
        size_t capacity = r->capacity ? r->capacity * 2 : 4;
        struct relabel_piece *pieces = arena_alloc(r->arena, capacity * sizeof(*pieces));
        if (!pieces)
            return r->arena->error;
        if (t->count)
            memcpy(pieces, t->pieces, t->count * sizeof(*pieces));
        t->pieces = pieces;
        r->capacity = capacity;
    }
    t->pieces[t->count++] = (struct relabel_piece){.group = group, .text = text};
    if (group >= 0 && (unsigned)group + 1 > t->groups)
        t->groups = (unsigned)group + 1;
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Letters and digits of all scripts belong to a name, though no group can be called so.
static size_t foreign_letters(struct sv s)
{
    struct regex *letters = NULL;
    struct sv found = {NULL, 0};
    if (regex_new(SV("^[\\pL\\p{Nd}_]+"), REGEX_SEARCH, &letters, NULL) < 0)
        return 0;
    if (!regex_match(letters, s, &found, 1))
        found.len = 0;
    regex_free(letters);
    return found.len;
}

static size_t name_length(struct sv s)
{
    size_t length = 0;
    while (length < s.len &&
           (is_letter(s.ptr[length]) || is_digit(s.ptr[length]) || s.ptr[length] == '_'))
        length++;
    if (length < s.len && (unsigned char)s.ptr[length] >= 0x80)
        return foreign_letters(s);
    return length;
}

static int add_group(struct reader *r, unsigned group, bool fallback)
{
    if (group >= REGEX_GROUPS_MAX)
        return -E2BIG;
    int result = add_piece(r, (int)group, SV(""));
    if (result == 0)
        r->out->pieces[r->out->count - 1].fallback = fallback;
    return result;
}

// Digits are a number, unless padded with zeros. A number beyond most is most + 1.
static bool is_number(struct sv name, unsigned most, unsigned *out)
{
    unsigned number = 0;
    if (name.len > 1 && name.ptr[0] == '0')
        return false;
    for (size_t i = 0; i < name.len; i++) {
        if (!is_digit(name.ptr[i]))
            return false;
        number = number > most ? number : number * 10 + (unsigned)(name.ptr[i] - '0');
    }
    *out = number > most ? most + 1 : number;
    return true;
}

static int add_reference(struct reader *r, struct sv name)
{
    unsigned count = r->regex ? regex_group_count(r->regex) : 1, number;
    if (is_number(name, count, &number))
        return number <= count ? add_group(r, number, false) : 0;
    int result = 0, first = r->regex ? regex_group_index(r->regex, name) : -1;
    for (int group = first; group > 0 && result == 0;
         group = regex_next_group(r->regex, name, group))
        result = add_group(r, (unsigned)group, group != first);
    return result;
}

// Behind a $. Takes the reference, or nothing when there is none.
static int read_reference(struct reader *r)
{
    struct sv s = r->rest;
    bool braced = s.len && s.ptr[0] == '{';
    struct sv name = sv_sub(s, braced, s.len);
    name.len = name_length(name);
    size_t end = braced + name.len;
    if (name.len == 0 || (braced && (end == s.len || s.ptr[end] != '}')))
        return add_piece(r, -1, SV("$"));
    r->rest = sv_sub(s, end + braced, s.len);
    return add_reference(r, name);
}

int relabel_template_read(struct sv text, const struct regex *regex, struct arena *arena,
                          struct relabel_template *out)
{
    struct reader r = {.rest = text, .regex = regex, .out = out, .arena = arena};
    *out = (struct relabel_template){0};
    int result = 0;
    while (result == 0 && r.rest.len) {
        size_t dollar = sv_find_char(r.rest, '$');
        size_t plain = dollar == (size_t)-1 ? r.rest.len : dollar;
        result = add_piece(&r, -1, sv_sub(r.rest, 0, plain));
        if (result < 0 || plain == r.rest.len)
            break;
        r.rest = sv_sub(r.rest, plain + 1, r.rest.len);
        if (r.rest.len && r.rest.ptr[0] == '$') {
            result = add_piece(&r, -1, SV("$"));
            r.rest = sv_sub(r.rest, 1, r.rest.len);
        } else {
            result = read_reference(&r);
        }
    }
    return result;
}

// What the next piece gives. *taken: whether the group before it, which it may stand in for, took
// part.
static struct sv piece_text(const struct relabel_piece *p, const struct sv *spans, bool *taken)
{
    if (p->group < 0)
        return p->text;
    if (p->fallback && *taken)
        return SV("");
    *taken = spans[p->group].ptr;
    return spans[p->group];
}

struct sv relabel_template_fill(const struct relabel_template *t, const struct sv *spans,
                                struct arena *arena)
{
    size_t length = 0;
    bool taken = false;
    for (size_t i = 0; i < t->count; i++)
        length += piece_text(&t->pieces[i], spans, &taken).len;
    char *text = arena_alloc(arena, length + 1);
    char *at = text;
    for (size_t i = 0; text && i < t->count; i++) {
        struct sv piece = piece_text(&t->pieces[i], spans, &taken);
        if (piece.len)
            at = mempcpy(at, piece.ptr, piece.len);
    }
    if (at)
        *at = '\0';
    return (struct sv){text, text ? length : 0};
}
