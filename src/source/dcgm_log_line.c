// SPDX-License-Identifier: Apache-2.0
#include "source/dcgm_log_line.h"

#include "base/num.h"

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The next word, empty at the end.
static struct sv take_word(struct sv *rest)
{
    size_t from = 0, to;
    while (from < rest->len && is_blank(rest->ptr[from]))
        from++;
    for (to = from; to < rest->len && !is_blank(rest->ptr[to]);)
        to++;
    struct sv word = sv_sub(*rest, from, to - from);
    *rest = sv_sub(*rest, to, rest->len);
    return word;
}

// pattern: '9' stands for a digit, all else for itself.
static bool has_shape(struct sv word, struct sv pattern)
{
    if (word.len != pattern.len)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        bool is_digit = word.ptr[i] >= '0' && word.ptr[i] <= '9';
        if (pattern.ptr[i] == '9' ? !is_digit : word.ptr[i] != pattern.ptr[i])
            return false;
    }
    return true;
}

static bool in_range(struct sv word, size_t at, uint64_t least, uint64_t most)
{
    uint64_t number;
    return num_parse_u64(sv_sub(word, at, 2), least, most, &number) == 0;
}

static bool is_time(struct sv date, struct sv time)
{
    return has_shape(date, SV("9999-99-99")) && in_range(date, 5, 1, 12) &&
           in_range(date, 8, 1, 31) && has_shape(time, SV("99:99:99.999")) &&
           in_range(time, 0, 0, 23) && in_range(time, 3, 0, 59) && in_range(time, 6, 0, 59);
}

bool dcgm_log_line_parse(struct sv line, char *scratch, struct dcgm_log_line *out)
{
    struct sv date = take_word(&line), time = take_word(&line);
    if (!is_time(date, time))
        return false;
    struct sv level = take_word(&line), thread = take_word(&line), word;
    size_t used = 0;
    while ((word = take_word(&line)).len) {
        if (used)
            scratch[used++] = ' ';
        memcpy(scratch + used, word.ptr, word.len);
        used += word.len;
    }
    if (thread.len == 0 || used == 0)
        return false;
    *out = (struct dcgm_log_line){.level = level, .text = {scratch, used}};
    return true;
}
