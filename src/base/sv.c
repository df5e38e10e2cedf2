// SPDX-License-Identifier: Apache-2.0
#include "base/sv.h"

#include <stdint.h>
#include <stdlib.h>

bool sv_equals(struct sv a, struct sv b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool sv_equals_nocase(struct sv a, struct sv b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i]))
            return false;
    }
    return true;
}

bool sv_starts_with(struct sv s, struct sv prefix)
{
    return s.len >= prefix.len && sv_equals(sv_sub(s, 0, prefix.len), prefix);
}

bool sv_ends_with(struct sv s, struct sv suffix)
{
    return s.len >= suffix.len && sv_equals(sv_sub(s, s.len - suffix.len, suffix.len), suffix);
}

int sv_compare(struct sv a, struct sv b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.ptr, b.ptr, common) : 0;
    if (order)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

static bool in_set(char c, const char *set)
{
    return c && strchr(set, c);
}

struct sv sv_trim(struct sv s, const char *set)
{
    while (s.len && in_set(s.ptr[0], set)) {
        s.ptr++;
        s.len--;
    }
    while (s.len && in_set(s.ptr[s.len - 1], set))
        s.len--;
    return s;
}

struct sv sv_sub(struct sv s, size_t from, size_t len)
{
    if (!s.ptr)
        return s;
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return (struct sv){s.ptr + from, len};
}

size_t sv_find_char(struct sv s, char c)
{
    const char *at = s.len ? memchr(s.ptr, c, s.len) : NULL;
    return at ? (size_t)(at - s.ptr) : (size_t)-1;
}

size_t sv_find(struct sv s, struct sv needle)
{
    if (!needle.len)
        return 0;
    const char *at = s.len ? memmem(s.ptr, s.len, needle.ptr, needle.len) : NULL;
    return at ? (size_t)(at - s.ptr) : (size_t)-1;
}

bool sv_next(struct sv *s, char separator, struct sv *head)
{
    if (!s->len) {
        *head = sv_sub(*s, 0, 0);
        return false;
    }
    size_t at = sv_find_char(*s, separator);
    if (at == (size_t)-1) {
        *head = *s;
        *s = sv_sub(*s, s->len, 0);
        return true;
    }
    *head = sv_sub(*s, 0, at);
    *s = sv_sub(*s, at + 1, s->len);
    return true;
}

// Length of the well-formed UTF-8 sequence at the front (Unicode 15, table 3-7), 0 when there is
// none.
size_t sv_utf8_length(struct sv s)
{
    if (!s.len)
        return 0;
    unsigned char lead = (unsigned char)s.ptr[0];
    if (lead < 0x80)
        return 1;
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || s.len < length)
        return 0;
    unsigned char second = (unsigned char)s.ptr[1];
    unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (second < least || second > most)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (((unsigned char)s.ptr[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

bool sv_is_utf8(struct sv s)
{
    while (s.len) {
        size_t length = sv_utf8_length(s);
        if (!length)
            return false;
        s = sv_sub(s, length, s.len);
    }
    return true;
}

struct sv sv_cut(struct sv s, size_t most)
{
    if (s.len <= most)
        return s;
    // At most three bytes of a character can stand before the cut.
    for (int i = 0; i < 3 && most > 0 && ((unsigned char)s.ptr[most] & 0xc0) == 0x80; i++)
        most--;
    return (struct sv){s.ptr, most};
}

static unsigned least_of(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

unsigned sv_distance(struct sv a, struct sv b, unsigned limit)
{
    unsigned row[SV_DISTANCE_MAX_BYTES + 1];
    size_t gap = a.len > b.len ? a.len - b.len : b.len - a.len;
    if (gap > limit || a.len > SV_DISTANCE_MAX_BYTES || b.len > SV_DISTANCE_MAX_BYTES)
        return limit + 1;
    for (size_t j = 0; j <= b.len; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a.len; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b.len; j++) {
            unsigned change = diagonal + (a.ptr[i - 1] != b.ptr[j - 1]);
            diagonal = row[j];
            row[j] = least_of(row[j] + 1, row[j - 1] + 1, change);
        }
    }
    return row[b.len] > limit ? limit + 1 : row[b.len];
}

struct sv_guess sv_guess_start(struct sv wanted)
{
    // A third of the letters wrong is the most that still reads as a slip.
    unsigned most = wanted.len < 6 ? 2 : wanted.len > 24 ? 8 : (unsigned)wanted.len / 3;
    return (struct sv_guess){.wanted = wanted, .distance = most + 1};
}

void sv_guess_offer(struct sv_guess *g, struct sv known)
{
    if (!g->distance)
        return;
    unsigned distance = sv_distance(g->wanted, known, g->distance - 1);
    if (distance >= g->distance || distance >= known.len)
        return;
    g->distance = distance;
    g->best = known;
}

char *sv_dup(struct sv s)
{
    if (s.len == SIZE_MAX)
        return NULL;
    char *copy = malloc(s.len + 1);
    if (!copy)
        return NULL;
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}

void sv_copy(char *out, size_t out_bytes, struct sv s)
{
    if (!out_bytes)
        return;
    size_t len = s.len < out_bytes - 1 ? s.len : out_bytes - 1;
    if (len)
        memcpy(out, s.ptr, len);
    out[len] = '\0';
}
