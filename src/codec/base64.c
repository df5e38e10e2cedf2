// SPDX-License-Identifier: Apache-2.0
#include "codec/base64.h"

#include <errno.h>
#include <stdint.h>

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

int base64_decode(struct sv in, char *out, size_t out_bytes, size_t *out_len)
{
    if (in.len % 4 != 0 || in.len / 4 * 3 > out_bytes)
        return -EINVAL;
    size_t padding = 0;
    while (padding < 2 && padding < in.len && in.ptr[in.len - 1 - padding] == '=')
        padding++;
    size_t digits = in.len - padding;
    size_t to = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < in.len; i++) {
        int digit = i < digits ? digit_value(in.ptr[i]) : 0;
        if (digit < 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 3)
            continue;
        out[to++] = (char)(bits >> 16 & 0xff);
        out[to++] = (char)(bits >> 8 & 0xff);
        out[to++] = (char)(bits & 0xff);
    }
    *out_len = to - padding;
    return 0;
}
