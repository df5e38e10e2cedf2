// SPDX-License-Identifier: Apache-2.0
#include "source/kmsg.h"

#include <stdio.h>

#include "base/num.h"

#define XID_MAX 65535

// Hexadecimal of 1 to most digits at the front of *s.
static bool take_hex(struct sv *s, size_t most, uint32_t *out)
{
    uint32_t value = 0;
    size_t n = 0;
    for (; n < s->len && n < most; n++) {
        int digit = num_hex_digit(s->ptr[n]);
        if (digit < 0)
            break;
        value = value << 4 | (uint32_t)digit;
    }
    *s = sv_sub(*s, n, s->len);
    *out = value;
    return n > 0;
}

static bool take(struct sv *s, struct sv word)
{
    if (!sv_starts_with(*s, word))
        return false;
    *s = sv_sub(*s, word.len, s->len);
    return true;
}

static bool take_u64(struct sv *s, uint64_t most, uint64_t *out)
{
    size_t n = 0;
    while (n < s->len && s->ptr[n] >= '0' && s->ptr[n] <= '9')
        n++;
    if (num_parse_u64(sv_sub(*s, 0, n), 0, most, out) < 0)
        return false;
    *s = sv_sub(*s, n, s->len);
    return true;
}

static bool take_number(struct sv *s, uint32_t most, uint32_t *out)
{
    uint64_t value;
    if (!take_u64(s, most, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

// "0000:1b:00", perhaps with ".0".
static bool take_address(struct sv *s, uint64_t *out_key)
{
    uint32_t domain, bus, device, function;
    if (!take_hex(s, 8, &domain) || !take(s, SV(":")) || !take_hex(s, 2, &bus) ||
        !take(s, SV(":")) || !take_hex(s, 2, &device))
        return false;
    if (take(s, SV(".")) && !take_hex(s, 1, &function))
        return false;
    *out_key = (uint64_t)domain << 16 | bus << 8 | device;
    return true;
}

bool kmsg_bus_key_parse(struct sv bus_id, uint64_t *out_key)
{
    return take_address(&bus_id, out_key) && bus_id.len == 0;
}

// The text of a record whose prefix says that the kernel wrote it (facility 0), or of a line
// without prefix.
static bool kernel_text(struct sv *line)
{
    size_t end = sv_find_char(*line, '\n');
    *line = sv_sub(*line, 0, end == (size_t)-1 ? line->len : end);
    struct sv rest = *line;
    uint32_t priority;
    if (!take_number(&rest, UINT32_MAX, &priority) || !take(&rest, SV(",")))
        return true;
    size_t text = sv_find_char(rest, ';');
    if (text == (size_t)-1)
        return true;
    *line = sv_sub(rest, text + 1, rest.len);
    return priority >> 3 == 0;
}

// The kernel escapes what is not printable in /dev/kmsg; a file given instead may hold anything.
static void copy_printable(char *out, size_t out_bytes, struct sv text)
{
    sv_copy(out, out_bytes, text);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            *c = '?';
}

bool kmsg_parse(struct sv line, struct kmsg_xid *out)
{
    struct kmsg_xid xid = {.gpu_instance_id = UINT32_MAX};
    if (!kernel_text(&line))
        return false;
    // At the front, or behind a plain log's own time: "[  12.345678] NVRM: Xid".
    size_t at = sv_find(line, SV("NVRM: Xid (PCI:"));
    if (at == (size_t)-1 || (at > 0 && line.ptr[0] != '['))
        return false;
    struct sv text = sv_sub(line, at + 6, line.len), rest = sv_sub(line, at + 15, line.len);
    if (!take_address(&rest, &xid.bus_key))
        return false;
    if (take(&rest, SV(" GPU-I:")) && !take_number(&rest, 255, &xid.gpu_instance_id))
        return false;
    size_t close = sv_find(rest, SV("): "));
    if (close == (size_t)-1)
        return false;
    rest = sv_sub(rest, close + 3, rest.len);
    if (!take_number(&rest, XID_MAX, &xid.xid) || !xid.xid || !take(&rest, SV(",")))
        return false;
    copy_printable(xid.text, sizeof(xid.text), text);
    *out = xid;
    return true;
}

bool kmsg_stamp_parse(struct sv line, struct kmsg_stamp *out)
{
    uint64_t priority;
    struct kmsg_stamp stamp;
    if (!take_u64(&line, UINT32_MAX, &priority) || !take(&line, SV(",")) ||
        !take_u64(&line, UINT64_MAX, &stamp.seq) || !take(&line, SV(",")) ||
        !take_u64(&line, UINT64_MAX / 1000, &stamp.boot_us))
        return false;
    *out = stamp;
    return true;
}
