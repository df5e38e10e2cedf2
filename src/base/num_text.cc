// SPDX-License-Identifier: Apache-2.0
// std::to_chars finds the shortest digits; the layout around them is done here.
#include "base/num_text.h"

#include <charconv>
#include <cmath>
#include <cstring>

namespace
{

constexpr int least_plain_exponent = -4;
constexpr int first_scientific_exponent = 21;

// value = 0.d1d2d3... * 10^point, d1 not 0
struct shortest {
    char digits[20];
    int count;
    int point;
};

shortest shortest_digits(double v)
{
    char text[40];
    const auto end = std::to_chars(text, text + sizeof(text), v, std::chars_format::scientific).ptr;
    shortest s = {};
    const char *at = text;
    for (; *at != 'e'; at++) {
        if (*at != '.')
            s.digits[s.count++] = *at;
    }
    const bool negative = at[1] == '-';
    int exponent = 0;
    for (at += 2; at < end; at++)
        exponent = exponent * 10 + (*at - '0');
    s.point = (negative ? -exponent : exponent) + 1;
    return s;
}

char *put_zeros(char *out, int count)
{
    for (int i = 0; i < count; i++)
        *out++ = '0';
    return out;
}

char *put_digits(char *out, const char *digits, int count)
{
    std::memcpy(out, digits, static_cast<size_t>(count));
    return out + count;
}

char *put_plain(char *out, const shortest &s)
{
    if (s.point <= 0) {
        *out++ = '0';
        *out++ = '.';
        out = put_zeros(out, -s.point);
        return put_digits(out, s.digits, s.count);
    }
    if (s.count <= s.point)
        return put_zeros(put_digits(out, s.digits, s.count), s.point - s.count);
    out = put_digits(out, s.digits, s.point);
    *out++ = '.';
    return put_digits(out, s.digits + s.point, s.count - s.point);
}

char *put_scientific(char *out, const shortest &s)
{
    *out++ = s.digits[0];
    if (s.count > 1) {
        *out++ = '.';
        out = put_digits(out, s.digits + 1, s.count - 1);
    }
    int exponent = s.point - 1;
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent >= 100)
        *out++ = static_cast<char>('0' + exponent / 100);
    *out++ = static_cast<char>('0' + exponent / 10 % 10);
    *out++ = static_cast<char>('0' + exponent % 10);
    return out;
}

unsigned put_word(char *out, const char *word)
{
    const size_t len = std::strlen(word);
    std::memcpy(out, word, len);
    return static_cast<unsigned>(len);
}

} // namespace

unsigned num_print_double(char *out, double v)
{
    if (std::isnan(v))
        return put_word(out, "NaN");
    if (std::isinf(v))
        return put_word(out, v > 0 ? "+Inf" : "-Inf");
    char *at = out;
    if (std::signbit(v)) {
        *at++ = '-';
        v = -v;
    }
    if (v == 0) {
        *at++ = '0';
        return static_cast<unsigned>(at - out);
    }
    const shortest s = shortest_digits(v);
    const int exponent = s.point - 1;
    const bool plain = exponent >= least_plain_exponent && exponent < first_scientific_exponent;
    at = plain ? put_plain(at, s) : put_scientific(at, s);
    return static_cast<unsigned>(at - out);
}
