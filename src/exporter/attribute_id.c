// SPDX-License-Identifier: Apache-2.0
#include "exporter/attribute_id.h"

#include "base/num.h"
#include "exporter/attribute.h"
#include "exporter/dra.h"

static const struct sv uuid_prefixes[] = {SV("MIG-GPU-"), SV("GPU-"), SV("MIG-")}; // longest first

static size_t uuid_prefix_len(struct sv id)
{
    for (size_t i = 0; i < ARRAY_SIZE(uuid_prefixes); i++) {
        if (sv_starts_with(id, uuid_prefixes[i]))
            return uuid_prefixes[i].len;
    }
    return 0;
}

// 8-4-4-4-12 hex digits.
static bool is_uuid_text(struct sv s)
{
    if (s.len != 36)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        if (hyphen ? s.ptr[i] != '-' : num_hex_digit(s.ptr[i]) < 0)
            return false;
    }
    return true;
}

static bool key_add(struct attribute_key *k, struct sv text)
{
    if (text.len > sizeof(k->text) - k->len)
        return false;
    if (text.len)
        memcpy(k->text + k->len, text.ptr, text.len);
    k->len += text.len;
    return true;
}

static bool key_add_lower(struct attribute_key *k, struct sv text)
{
    size_t start = k->len;
    if (!key_add(k, text))
        return false;
    for (size_t i = start; i < k->len; i++) {
        if (k->text[i] >= 'A' && k->text[i] <= 'Z')
            k->text[i] = (char)(k->text[i] - 'A' + 'a');
    }
    return true;
}

static bool key_add_number(struct attribute_key *k, uint32_t n)
{
    char digits[NUM_U64_BYTES];
    return key_add(k, (struct sv){digits, num_print_u64(digits, n)});
}

static void key_start(struct attribute_key *k, char name_space)
{
    k->text[0] = name_space;
    k->len = 1;
}

static bool key_add_uuid(struct attribute_key *k, struct sv uuid)
{
    size_t prefix = uuid_prefix_len(uuid);
    return key_add(k, sv_sub(uuid, 0, prefix)) && key_add_lower(k, sv_sub(uuid, prefix, uuid.len));
}

bool attribute_key_uuid(struct sv uuid, struct attribute_key *out)
{
    key_start(out, 'U');
    return uuid.len && key_add_uuid(out, uuid);
}

bool attribute_key_parent_instance(struct sv parent_uuid, uint32_t gpu_instance_id,
                                   struct attribute_key *out)
{
    key_start(out, 'P');
    return parent_uuid.len && key_add_uuid(out, parent_uuid) && key_add(out, SV("/")) &&
           key_add_number(out, gpu_instance_id);
}

static bool parse_number(struct sv s, uint32_t *out)
{
    uint64_t n;
    if (num_parse_u64(s, 0, UINT32_MAX, &n) < 0)
        return false;
    *out = (uint32_t)n;
    return true;
}

bool attribute_key_legacy(struct sv id, struct attribute_key *out)
{
    struct sv rest = id;
    struct sv parent, gi;
    uint32_t gi_number, ci_number;
    if (!sv_starts_with(id, SV("MIG-GPU-")))
        return false;
    rest = sv_sub(rest, 4, rest.len);
    return sv_next(&rest, '/', &parent) && sv_next(&rest, '/', &gi) &&
           parse_number(gi, &gi_number) && parse_number(rest, &ci_number) &&
           attribute_key_parent_instance(parent, gi_number, out);
}

void attribute_key_minor(uint32_t minor, struct attribute_key *out)
{
    key_start(out, 'N');
    (void)key_add_number(out, minor);
}

void attribute_key_minor_instance(uint32_t minor, uint32_t gpu_instance_id,
                                  struct attribute_key *out)
{
    attribute_key_minor(minor, out);
    (void)(key_add(out, SV("/")) && key_add_number(out, gpu_instance_id));
}

static bool key_add_place(struct attribute_key *k, uint32_t profile_id, uint32_t placement)
{
    return key_add(k, SV("/")) && key_add_number(k, profile_id) && key_add(k, SV("/")) &&
           key_add_number(k, placement);
}

bool attribute_key_parent_place(struct sv parent_uuid, uint32_t profile_id, uint32_t placement,
                                struct attribute_key *out)
{
    key_start(out, 'Q');
    return parent_uuid.len && key_add_uuid(out, parent_uuid) &&
           key_add_place(out, profile_id, placement);
}

void attribute_key_minor_place(uint32_t minor, uint32_t profile_id, uint32_t placement,
                               struct attribute_key *out)
{
    key_start(out, 'M');
    (void)(key_add_number(out, minor) && key_add_place(out, profile_id, placement));
}

bool attribute_key_device_name(struct sv id, bool bare_number, struct attribute_key *out)
{
    bool named = sv_starts_with(id, SV("nvidia"));
    if (!named && !bare_number)
        return false;
    struct sv rest = named ? sv_sub(id, 6, id.len) : id;
    struct sv number = rest;
    size_t slash = sv_find_char(rest, '/');
    uint32_t minor, gi;
    if (slash != (size_t)-1)
        number = sv_sub(rest, 0, slash);
    if (!parse_number(number, &minor))
        return false;
    if (slash == (size_t)-1) {
        attribute_key_minor(minor, out);
        return true;
    }
    rest = sv_sub(rest, slash + 1, rest.len);
    if (!named || !sv_starts_with(rest, SV("gi")) || !parse_number(sv_sub(rest, 2, rest.len), &gi))
        return false;
    attribute_key_minor_instance(minor, gi, out);
    return true;
}

// Where the replica part begins and how long its separator is; false when the id has none.
static bool find_replica(struct sv id, size_t *at, size_t *separator)
{
    static const struct sv separators[] = {SV("/vgpu"), SV("::")};
    for (size_t i = 0; i < ARRAY_SIZE(separators); i++) {
        *at = sv_find(id, separators[i]);
        *separator = separators[i].len;
        if (*at != (size_t)-1)
            return true;
    }
    return false;
}

struct sv attribute_replica(struct sv device_id)
{
    size_t at, separator;
    if (!find_replica(device_id, &at, &separator))
        return (struct sv){NULL, 0};
    return sv_sub(device_id, at + separator, device_id.len);
}

struct sv attribute_strip_replica(struct sv device_id)
{
    size_t at, separator;
    if (!find_replica(device_id, &at, &separator))
        return device_id;
    return sv_sub(device_id, 0, at);
}

bool attribute_resource_is_gpu(const struct attribute_options *o, struct sv resource)
{
    if (sv_equals(resource, SV("nvidia.com/gpu")) ||
        sv_starts_with(resource, SV("nvidia.com/mig-")))
        return true;
    for (size_t i = 0; i < o->resource_name_count; i++) {
        if (sv_equals(resource, o->resource_names[i]))
            return true;
    }
    return false;
}

bool attribute_row_is_wanted(const struct attribute_options *o, struct sv resource,
                             struct sv device_id)
{
    struct attribute_key key;
    if (attribute_resource_is_gpu(o, resource) || sv_equals(resource, SV(DRA_DRIVER)))
        return true;
    struct sv id = attribute_strip_replica(device_id);
    return attribute_key_legacy(id, &key) ||
           (uuid_prefix_len(id) == 4 && is_uuid_text(sv_sub(id, 4, id.len)));
}
