// SPDX-License-Identifier: Apache-2.0
#include "exporter/dra_name.h"

#include "base/num.h"

static bool parse_number(struct sv s, uint32_t *out)
{
    uint64_t n;
    if (num_parse_u64(s, 0, UINT32_MAX - 1, &n) < 0)
        return false;
    *out = (uint32_t)n;
    return true;
}

// Cuts the last part off; false when there is only one.
static bool cut_last(struct sv *s, struct sv *last)
{
    size_t at = s->len;
    while (at > 0 && s->ptr[at - 1] != '-')
        at--;
    if (at == 0)
        return false;
    *last = sv_sub(*s, at, s->len - at);
    *s = sv_sub(*s, 0, at - 1);
    return true;
}

// NVML writes "1c.2g.10gb+me"; a device's name has lost the dots and what no name may have. The dot
// stands after each "<number>c" and "<number>g" that more follows.
static bool spell_profile(struct sv text, char *out, size_t out_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool digit_follows =
            i + 1 < text.len && num_hex_digit(text.ptr[i + 1]) >= 0 && text.ptr[i + 1] <= '9';
        if (n + 2 >= out_bytes)
            return false;
        out[n++] = c;
        if ((c == 'c' || c == 'g') && digit_follows)
            out[n++] = '.';
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_mig(struct sv rest, struct dra_name *out)
{
    struct sv placement, profile_id, minor;
    if (!cut_last(&rest, &placement) || !cut_last(&rest, &profile_id))
        return false;
    size_t at = sv_find(rest, SV("-mig-"));
    if (at == (size_t)-1)
        return false;
    minor = sv_sub(rest, 0, at);
    out->is_mig = true;
    return parse_number(minor, &out->minor) && parse_number(profile_id, &out->profile_id) &&
           parse_number(placement, &out->placement) &&
           spell_profile(sv_sub(rest, at + 5, rest.len), out->profile, sizeof(out->profile));
}

bool dra_name_parse(struct sv device, struct dra_name *out)
{
    struct dra_name name = {.profile_id = UINT32_MAX, .placement = UINT32_MAX};
    if (!sv_starts_with(device, SV("gpu-")))
        return false;
    struct sv rest = sv_sub(device, 4, device.len);
    if (!parse_number(rest, &name.minor) && !parse_mig(rest, &name))
        return false;
    *out = name;
    return true;
}
