// SPDX-License-Identifier: Apache-2.0
// String views: a pointer and a length, not NUL-terminated, never owning.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sv {
    const char *ptr;
    size_t len;
};

#define SV(literal) ((struct sv){(literal), sizeof(literal) - 1})
#define SV_FMT(s) (int)(s).len, (s).ptr // for "%.*s"

static inline struct sv sv_from(const char *cstr)
{
    return (struct sv){cstr, cstr ? strlen(cstr) : 0};
}

bool sv_equals(struct sv a, struct sv b);
bool sv_equals_nocase(struct sv a, struct sv b); // ASCII case only
bool sv_starts_with(struct sv s, struct sv prefix);
bool sv_ends_with(struct sv s, struct sv suffix);
int sv_compare(struct sv a, struct sv b);               // byte order, as memcmp
struct sv sv_trim(struct sv s, const char *set);        // strips bytes of set at both ends
struct sv sv_sub(struct sv s, size_t from, size_t len); // clamped to s
// Index of the first c / of the first needle, or (size_t)-1.
size_t sv_find_char(struct sv s, char c);
size_t sv_find(struct sv s, struct sv needle);
// Splits at the first separator: *head gets what is before it, *s what is behind.
// Returns false, with *head empty, when s is empty; a last piece without separator is returned
// once, and a separator at the very end yields no empty piece behind it ("a,,b," gives "a", "",
// "b").
bool sv_next(struct sv *s, char separator, struct sv *head);
bool sv_is_utf8(struct sv s);
// Bytes of the well-formed UTF-8 sequence s starts with; 0 when it starts with none.
size_t sv_utf8_length(struct sv s);
// The start of s, at most this many bytes; a character that would be cut is left away.
struct sv sv_cut(struct sv s, size_t most);
// Levenshtein distance, capped at limit + 1; for "did you mean". Texts over SV_DISTANCE_MAX_BYTES
// count as far.
#define SV_DISTANCE_MAX_BYTES 128
unsigned sv_distance(struct sv a, struct sv b, unsigned limit);
// "Did you mean": offer every known word, then look at best (empty: none is near enough).
struct sv_guess {
    struct sv wanted;
    struct sv best;
    unsigned distance; // of best
};
struct sv_guess sv_guess_start(struct sv wanted);
void sv_guess_offer(struct sv_guess *g, struct sv known);
// NUL-terminated copy on the heap, or NULL when memory is out.
char *sv_dup(struct sv s);
// Copies into a fixed array, cut to fit, always terminated.
void sv_copy(char *out, size_t out_bytes, struct sv s);

#ifdef __cplusplus
}
#endif
