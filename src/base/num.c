// SPDX-License-Identifier: Apache-2.0
#include "base/num.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

int num_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_decimal(char c)
{
    return c >= '0' && c <= '9';
}

// Digits of one base, nothing else. 0, -EINVAL, -ERANGE (does not fit; the rest is still checked).
static int parse_digits(struct sv s, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    bool overflow = false;
    if (!s.len)
        return -EINVAL;
    for (size_t i = 0; i < s.len; i++) {
        int digit = num_hex_digit(s.ptr[i]);
        if (digit < 0 || (unsigned)digit >= base)
            return -EINVAL;
        overflow |= __builtin_mul_overflow(value, (uint64_t)base, &value);
        overflow |= __builtin_add_overflow(value, (uint64_t)digit, &value);
    }
    if (overflow)
        return -ERANGE;
    *out = value;
    return 0;
}

int num_parse_u64(struct sv s, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value;
    int r = parse_digits(s, 10, &value);
    if (r < 0)
        return r;
    if (value < min || value > max)
        return -ERANGE;
    *out = value;
    return 0;
}

static int to_signed(bool negative, uint64_t magnitude, int64_t min, int64_t max, int64_t *out)
{
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return -ERANGE;
    int64_t value = (int64_t)(negative ? 0 - magnitude : magnitude);
    if (value < min || value > max)
        return -ERANGE;
    *out = value;
    return 0;
}

int num_parse_i64(struct sv s, int64_t min, int64_t max, int64_t *out)
{
    bool negative = s.len && s.ptr[0] == '-';
    uint64_t magnitude;
    int r = parse_digits(negative ? sv_sub(s, 1, s.len) : s, 10, &magnitude);
    return r < 0 ? r : to_signed(negative, magnitude, min, max, out);
}

// Takes the base prefix off s, as Go's strconv.ParseInt(s, 0, 64) reads it.
static unsigned take_base(struct sv *s)
{
    if (s->len < 2 || s->ptr[0] != '0')
        return 10;
    char letter = (char)(s->ptr[1] | 0x20);
    unsigned base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    *s = sv_sub(*s, base ? 2 : 1, s->len);
    return base ? base : 8;
}

// Removes '_' from digits into out; each must stand between two digits, or (after_prefix) before
// the first.
static int strip_underscores(struct sv s, bool after_prefix, char *out, size_t out_bytes,
                             struct sv *out_digits)
{
    size_t len = 0;
    bool may = after_prefix;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '_') {
            if (!may)
                return -EINVAL;
            may = false;
            continue;
        }
        // Longer than 64 binary digits and some leading zeros: no number of ours.
        if (len == out_bytes)
            return -ERANGE;
        out[len++] = s.ptr[i];
        may = true;
    }
    if (s.len && s.ptr[s.len - 1] == '_')
        return -EINVAL;
    *out_digits = (struct sv){out, len};
    return 0;
}

bool num_parse_special_go(struct sv s, double *out)
{
    bool sign = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+');
    struct sv word = sv_sub(s, sign, s.len);
    if (sv_equals_nocase(word, SV("inf")) || sv_equals_nocase(word, SV("infinity")))
        *out = s.ptr[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    else if (!sign && sv_equals_nocase(word, SV("nan")))
        *out = (double)NAN;
    else
        return false;
    return true;
}

int num_parse_i64_go(struct sv s, int64_t min, int64_t max, int64_t *out)
{
    bool negative = s.len && s.ptr[0] == '-';
    if (s.len && (s.ptr[0] == '-' || s.ptr[0] == '+'))
        s = sv_sub(s, 1, s.len);
    size_t whole = s.len;
    unsigned base = take_base(&s);
    char digits[128];
    struct sv clean;
    uint64_t magnitude;
    int r = strip_underscores(s, s.len < whole, digits, sizeof(digits), &clean);
    if (r == 0)
        r = parse_digits(clean, base, &magnitude);
    return r < 0 ? r : to_signed(negative, magnitude, min, max, out);
}

int num_parse_bool_go(struct sv s, bool *out)
{
    static const char *const yes[] = {"1", "t", "T", "TRUE", "true", "True"};
    static const char *const no[] = {"0", "f", "F", "FALSE", "false", "False"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (sv_equals(s, sv_from(yes[i])) || sv_equals(s, sv_from(no[i]))) {
            *out = sv_equals(s, sv_from(yes[i]));
            return 0;
        }
    }
    return -EINVAL;
}

#define DOUBLE_TEXT_BYTES 1024 // the longest exact double has 767 digits

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

// What the grammar check learns on the way.
struct decimal {
    uint64_t mantissa; // of the digits, when there are at most 19
    int exponent;      // mantissa * 10^exponent, when exponent_digits <= 4
    unsigned digits;   // significant ones
    unsigned exponent_digits;
    bool negative;
};

static size_t scan_mantissa(struct sv s, size_t at, struct decimal *d)
{
    size_t seen = 0;
    bool point = false;
    for (; at < s.len; at++) {
        if (s.ptr[at] == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_decimal(s.ptr[at]))
            break;
        unsigned digit = (unsigned)(s.ptr[at] - '0');
        seen++;
        d->exponent -= point;
        if (!d->digits && !digit)
            continue;
        if (d->digits++ < 19)
            d->mantissa = d->mantissa * 10 + digit;
    }
    return seen ? at : 0;
}

// 0 or -EINVAL.
static int scan_exponent(struct sv s, size_t at, struct decimal *d)
{
    if (at == s.len)
        return 0;
    if ((s.ptr[at] | 0x20) != 'e')
        return -EINVAL;
    at++;
    bool negative = at < s.len && s.ptr[at] == '-';
    if (at < s.len && (s.ptr[at] == '-' || s.ptr[at] == '+'))
        at++;
    if (at == s.len)
        return -EINVAL;
    int exponent = 0;
    for (; at < s.len; at++) {
        if (!is_decimal(s.ptr[at]))
            return -EINVAL;
        if (++d->exponent_digits <= 4)
            exponent = exponent * 10 + (s.ptr[at] - '0');
    }
    d->exponent += negative ? -exponent : exponent;
    return 0;
}

// Exact when both the digits and the power of ten are exact doubles (Clinger 1990): one rounding.
static bool fast_double(const struct decimal *d, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (d->digits > 15 || d->exponent_digits > 4 || d->exponent < -22 || d->exponent > 22)
        return false;
    double value = (double)d->mantissa;
    value = d->exponent < 0 ? value / powers[-d->exponent] : value * powers[d->exponent];
    *out = d->negative ? -value : value;
    return true;
}

int num_parse_double(struct sv s, double *out)
{
    struct decimal d = {.negative = s.len && s.ptr[0] == '-'};
    size_t start = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+') ? 1 : 0;
    size_t at = scan_mantissa(s, start, &d);
    if (!at || scan_exponent(s, at, &d) < 0)
        return -EINVAL;
    if (fast_double(&d, out))
        return 0;
    char text[DOUBLE_TEXT_BYTES + 1];
    if (s.len > DOUBLE_TEXT_BYTES)
        return -EINVAL;
    sv_copy(text, sizeof(text), s);
    (void)pthread_once(&c_locale_once, make_c_locale);
    double value = c_locale ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
    if (isinf(value))
        return -ERANGE;
    *out = value;
    return 0;
}

// Takes the unit at the front of s. Its length in ns, 0 for none of Go's units.
static uint64_t take_unit(struct sv *s)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } units[] = {
        {"ns", 1},         {"us", NS_PER_US}, {"\xc2\xb5s", NS_PER_US}, {"\xce\xbcs", NS_PER_US},
        {"ms", NS_PER_MS}, {"s", NS_PER_S},   {"m", 60 * NS_PER_S},     {"h", 3600 * NS_PER_S},
    };
    size_t len = 0;
    while (len < s->len && s->ptr[len] != '.' && !is_decimal(s->ptr[len]))
        len++;
    struct sv name = sv_sub(*s, 0, len);
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (!sv_equals(name, sv_from(units[i].text)))
            continue;
        *s = sv_sub(*s, len, s->len);
        return units[i].ns;
    }
    return 0;
}

// One "1.5h" off the front of s, added to *total.
static int take_duration(struct sv *s, uint64_t *total)
{
    size_t len = 0;
    while (len < s->len && is_decimal(s->ptr[len]))
        len++;
    struct sv whole = sv_sub(*s, 0, len);
    struct sv fraction = {0};
    *s = sv_sub(*s, len, s->len);
    if (s->len && s->ptr[0] == '.') {
        size_t end = 1;
        while (end < s->len && is_decimal(s->ptr[end]))
            end++;
        fraction = sv_sub(*s, 1, end - 1);
        *s = sv_sub(*s, end, s->len);
    }
    if (!whole.len && !fraction.len)
        return -EINVAL;
    uint64_t unit = take_unit(s);
    if (!unit)
        return -EINVAL;
    uint64_t value = 0;
    if (whole.len && parse_digits(whole, 10, &value) < 0)
        return -ERANGE;
    if (__builtin_mul_overflow(value, unit, &value) || __builtin_add_overflow(*total, value, total))
        return -ERANGE;
    uint64_t scale = unit;
    for (size_t i = 0; i < fraction.len && (scale /= 10); i++) {
        if (__builtin_add_overflow(*total, scale * (unsigned)(fraction.ptr[i] - '0'), total))
            return -ERANGE;
    }
    return 0;
}

int num_parse_duration_go(struct sv s, uint64_t *out_ns)
{
    bool negative = s.len && s.ptr[0] == '-';
    if (s.len && (s.ptr[0] == '-' || s.ptr[0] == '+'))
        s = sv_sub(s, 1, s.len);
    uint64_t total = 0;
    int r = s.len ? 0 : -EINVAL;
    if (sv_equals(s, SV("0")))
        s.len = 0;
    while (r == 0 && s.len)
        r = take_duration(&s, &total);
    if (r < 0)
        return r;
    if (total > INT64_MAX || (negative && total))
        return -ERANGE;
    *out_ns = total;
    return 0;
}

unsigned num_print_u64(char *out, uint64_t v)
{
    char reversed[NUM_U64_BYTES];
    unsigned len = 0;
    do {
        reversed[len++] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    for (unsigned i = 0; i < len; i++)
        out[i] = reversed[len - 1 - i];
    return len;
}

unsigned num_print_i64(char *out, int64_t v)
{
    if (v >= 0)
        return num_print_u64(out, (uint64_t)v);
    out[0] = '-';
    return 1 + num_print_u64(out + 1, 0 - (uint64_t)v);
}
