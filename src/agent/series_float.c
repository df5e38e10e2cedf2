// SPDX-License-Identifier: Apache-2.0
// How Prometheus 3 writes the numbers in le and quantile labels, whatever the page says: Go's
// FormatFloat(v, 'g', -1, 64), and ".0" behind an integer (model/textparse:
// normalizeFloatsInLabelValues, formatOpenMetricsFloat).
#include <math.h>

#include "agent/series_internal.h"
#include "base/num.h"
#include "base/num_text.h"

#define EXPONENT_FROM 6 // num_print_double has it from 21 only

// "1234567.5" to "1.2345675e+06". digits: of the part before the point.
static unsigned to_exponent(char *text, unsigned length, unsigned digits, unsigned start)
{
    bool has_point = digits < length - start;
    memmove(text + start + 2, text + start + 1, digits - 1); // over the point, if there is one
    length += !has_point;
    text[start + 1] = '.';
    while (text[length - 1] == '0')
        length--;
    length -= text[length - 1] == '.';
    unsigned exponent = digits - 1;
    text[length++] = 'e';
    text[length++] = '+';
    text[length++] = (char)('0' + exponent / 10);
    text[length++] = (char)('0' + exponent % 10);
    return length;
}

unsigned series_normalise_number(struct sv s, char out[SERIES_NUMBER_BYTES])
{
    double v;
    if (num_parse_double(s, &v) < 0 && !num_parse_special_go(s, &v))
        return 0;
    v += 0.0; // no negative zero
    unsigned length = num_print_double(out, v);
    struct sv text = {out, length};
    if (!isfinite(v) || sv_find_char(text, 'e') != (size_t)-1)
        return length;
    unsigned start = out[0] == '-';
    size_t point = sv_find_char(text, '.');
    unsigned digits = (unsigned)(point == (size_t)-1 ? length : point) - start;
    if (digits > EXPONENT_FROM)
        return to_exponent(out, length, digits, start);
    if (point == (size_t)-1) {
        out[length++] = '.';
        out[length++] = '0';
    }
    return length;
}
