// SPDX-License-Identifier: Apache-2.0
// How it works. Each slice is read once into one arena and is immutable and counted from then on;
// `slices` has the ones that the API server has now. A pool that is complete takes hold of its
// slices and makes a table of their devices by name; it keeps both, whatever becomes of the slices,
// until a newer generation is complete or the pool has no slice left.
#include "exporter/dra.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/map.h"
#include "exporter/dra_name.h"

// Of one slice: texts of at most LIMIT_DRA_NAME_BYTES, four a device, and the array.
#define SLICE_BYTES (16u << 20)

struct slice {
    unsigned refs;
    struct arena arena;
    const char *pool;
    int64_t generation, slice_count;
    struct dra_entry {
        const char *name;
        enum dra_kind kind;
        const char *uuid, *parent_uuid, *profile;
    } * devices;
    size_t device_count;
    uint64_t hash; // of all that is shown
};

struct pool {
    struct slice **slices; // in force
    size_t slice_count;
    struct map devices; // name -> struct dra_entry
    uint64_t hash;      // sum of its slices'
};

struct dra {
    struct map slices; // key -> struct slice
    struct map pools;  // name -> struct pool; only those that have been complete
    size_t devices;    // of all slices
    uint64_t version;
    uint64_t skipped;
    char profile[LIMIT_DRA_NAME_BYTES]; // scratch of dra_find
};

static void slice_unref(struct slice *s)
{
    if (!s || --s->refs > 0)
        return;
    arena_deinit(&s->arena);
    free(s);
}

static void pool_free(struct pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->slice_count; i++)
        slice_unref(p->slices[i]);
    free(p->slices);
    map_deinit(&p->devices);
    free(p);
}

// --- Reading a slice ---

static const struct json_node *member(const struct json_node *object, const char *key,
                                      enum json_kind kind)
{
    const struct json_node *n =
        object && object->kind == JSON_OBJECT ? json_find(object, key) : NULL;
    return n && n->kind == kind ? n : NULL;
}

static bool is_name(struct sv s)
{
    return s.len > 0 && s.len < LIMIT_DRA_NAME_BYTES;
}

static struct sv member_text(const struct json_node *object, const char *key)
{
    const struct json_node *n = member(object, key, JSON_STRING);
    return n && is_name(n->string) ? n->string : (struct sv){"", 0};
}

static int64_t member_integer(const struct json_node *object, const char *key)
{
    const struct json_node *n = member(object, key, JSON_INTEGER);
    return n ? n->integer : 0;
}

// {"string": "..."}; the driver's own attributes may be written with its name before them.
static struct sv attribute_text(const struct json_node *attributes, const char *name,
                                const char *qualified)
{
    const struct json_node *value = member(attributes, name, JSON_OBJECT);
    return member_text(value ? value : member(attributes, qualified, JSON_OBJECT), "string");
}
#define ATTRIBUTE(attributes, name) attribute_text(attributes, name, DRA_DRIVER "/" name)

// The sum so far is stirred: slices' hashes are added up, and devices may change places.
static const char *keep(struct slice *s, struct sv text)
{
    s->hash = (s->hash ^ s->hash >> 32) * UINT64_C(0x9e3779b97f4a7c15) + map_hash(text);
    s->hash ^= s->hash >> 29;
    return arena_dup(&s->arena, text);
}

// False: no GPU and no instance of one, or it has no name.
static bool read_device(struct slice *s, const struct json_node *device, struct dra_entry *out)
{
    struct sv name = member_text(device, "name");
    const struct json_node *basic = member(device, "basic", JSON_OBJECT); // v1beta1
    const struct json_node *a = member(basic ? basic : device, "attributes", JSON_OBJECT);
    struct sv type = ATTRIBUTE(a, "type");
    bool mig = sv_equals(type, SV("mig"));
    if (name.len == 0 || (!mig && !sv_equals(type, SV("gpu"))))
        return false;
    *out = (struct dra_entry){
        .name = keep(s, name),
        .kind = mig ? DRA_MIG : DRA_GPU,
        .uuid = keep(s, ATTRIBUTE(a, "uuid")),
        .parent_uuid = keep(s, mig ? ATTRIBUTE(a, "parentUUID") : SV("")),
        .profile = keep(s, mig ? ATTRIBUTE(a, "profile") : SV("")),
    };
    return true;
}

static int read_devices(struct slice *s, const struct json_node *list, size_t most,
                        uint64_t *skipped)
{
    size_t count = list ? list->count : 0;
    s->devices = arena_alloc(&s->arena, (count < most ? count : most) * sizeof(*s->devices) + 1);
    for (const struct json_node *d = list ? list->first : NULL; d && s->devices; d = d->next) {
        struct dra_entry e;
        if (s->device_count == most)
            ++*skipped;
        else if (read_device(s, d, &e))
            s->devices[s->device_count++] = e;
    }
    return s->arena.error;
}

// NULL: out of memory.
static struct slice *slice_read(const struct json_node *spec, struct sv pool_name, size_t most,
                                uint64_t *skipped)
{
    const struct json_node *pool = member(spec, "pool", JSON_OBJECT);
    struct slice *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct slice){
        .refs = 1,
        .arena = ARENA_INIT(SLICE_BYTES),
        .generation = member_integer(pool, "generation"),
        .slice_count = member_integer(pool, "resourceSliceCount"),
    };
    s->pool = keep(s, pool_name);
    if (read_devices(s, member(spec, "devices", JSON_ARRAY), most, skipped) < 0) {
        slice_unref(s);
        return NULL;
    }
    return s;
}

// --- Pools ---

struct pool_look {
    int64_t generation; // the highest
    int64_t wanted;     // how many slices it has
    size_t found;       // of that generation
    size_t any;         // of any
};

static struct pool_look look_at_pool(const struct dra *d, const char *name)
{
    struct pool_look look = {0};
    void *value;
    for (size_t pos = 0; map_next(&d->slices, &pos, NULL, &value);) {
        const struct slice *s = value;
        if (strcmp(s->pool, name) != 0)
            continue;
        if (look.any++ == 0 || s->generation > look.generation) {
            look.generation = s->generation;
            look.found = 0;
            look.wanted = s->slice_count;
        }
        look.found += s->generation == look.generation;
    }
    return look;
}

static int pool_fill(struct pool *p, struct dra *d, const char *name, int64_t generation)
{
    void *value;
    for (size_t pos = 0; map_next(&d->slices, &pos, NULL, &value);) {
        struct slice *s = value;
        if (strcmp(s->pool, name) != 0 || s->generation != generation)
            continue;
        s->refs++;
        p->slices[p->slice_count++] = s;
        p->hash += s->hash;
        for (size_t i = 0; i < s->device_count; i++) {
            int r = map_put(&p->devices, sv_from(s->devices[i].name), &s->devices[i], NULL);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int pool_make(struct dra *d, const char *name, const struct pool_look *look,
                     struct pool **out)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->devices = MAP_INIT(LIMIT_DRA_DEVICES);
    p->slices = calloc(look->found, sizeof(*p->slices));
    int r = p->slices ? pool_fill(p, d, name, look->generation) : -ENOMEM;
    if (r < 0) {
        pool_free(p);
        return r;
    }
    *out = p;
    return 0;
}

static void pool_drop(struct dra *d, const char *name)
{
    struct pool *old = map_remove(&d->pools, sv_from(name));
    d->version += old != NULL;
    pool_free(old);
}

// After a change of its slices. 0, -ENOMEM (the pool is as before).
static int pool_refresh(struct dra *d, const char *name)
{
    struct pool_look look = look_at_pool(d, name);
    struct pool *fresh;
    void *old = NULL;
    if (look.any == 0) {
        pool_drop(d, name);
        return 0;
    }
    if (look.wanted > 0 && look.found < (uint64_t)look.wanted)
        return 0;
    int r = pool_make(d, name, &look, &fresh);
    if (r < 0)
        return r;
    r = map_put(&d->pools, sv_from(name), fresh, &old);
    if (r < 0) {
        pool_free(fresh);
        return r;
    }
    const struct pool *before = old;
    d->version += !before || before->hash != fresh->hash;
    pool_free(old);
    return 0;
}

// --- Slices ---

// Takes the reference that the map had; the pool's name lives in the slice.
static int slice_removed(struct dra *d, struct slice *s)
{
    d->devices -= s->device_count;
    int r = pool_refresh(d, s->pool);
    slice_unref(s);
    return r;
}

void dra_delete(struct dra *d, struct sv key)
{
    struct slice *s = map_remove(&d->slices, key);
    if (s)
        (void)slice_removed(d, s); // out of memory: what is in force stays
}

// What was under the key is gone; the slice is nobody's, or not ours.
static int leave_out(struct dra *d, struct sv key, bool broken)
{
    dra_delete(d, key);
    d->skipped += broken;
    return broken ? -EBADMSG : 0;
}

int dra_put(struct dra *d, struct sv key, const struct json_node *slice)
{
    const struct json_node *spec = member(slice, "spec", JSON_OBJECT);
    struct sv driver = member_text(spec, "driver");
    struct sv pool = member_text(member(spec, "pool", JSON_OBJECT), "name");
    if (!spec || driver.len == 0 || !is_name(key))
        return leave_out(d, key, true);
    if (!sv_equals(driver, SV(DRA_DRIVER)))
        return leave_out(d, key, false);
    if (pool.len == 0)
        return leave_out(d, key, true);
    const struct slice *now = map_find(&d->slices, key);
    size_t others = d->devices - (now ? now->device_count : 0);
    struct slice *fresh = slice_read(spec, pool, LIMIT_DRA_DEVICES - others, &d->skipped);
    if (!fresh)
        return -ENOMEM;
    void *old = NULL;
    int r = map_put(&d->slices, key, fresh, &old);
    if (r < 0) {
        slice_unref(fresh);
        return r == -E2BIG ? leave_out(d, key, true) : r;
    }
    d->devices += fresh->device_count;
    struct slice *before = old;
    if (before && strcmp(before->pool, fresh->pool) == 0) {
        d->devices -= before->device_count;
        slice_unref(before);
    } else if (before) {
        r = slice_removed(d, before);
    }
    int made = pool_refresh(d, fresh->pool);
    return r < 0 ? r : made;
}

// --- Questions ---

// Profile id and placement are nowhere but in the name.
static bool find_in_slices(struct dra *d, struct sv pool, struct sv device, struct dra_device *out)
{
    const struct pool *p = map_find(&d->pools, pool);
    const struct dra_entry *e = p ? map_find(&p->devices, device) : NULL;
    struct dra_name name;
    if (!e)
        return false;
    *out = (struct dra_device){
        .kind = e->kind,
        .uuid = e->uuid,
        .parent_uuid = e->parent_uuid,
        .profile = e->profile,
        .minor = UINT32_MAX,
        .profile_id = UINT32_MAX,
        .placement = UINT32_MAX,
    };
    if (dra_name_parse(device, &name)) {
        out->minor = name.minor;
        out->profile_id = name.profile_id;
        out->placement = name.placement;
    }
    return true;
}

static bool find_by_name(struct dra *d, struct sv device, struct dra_device *out)
{
    struct dra_name name;
    if (!dra_name_parse(device, &name))
        return false;
    sv_copy(d->profile, sizeof(d->profile), sv_from(name.profile));
    *out = (struct dra_device){
        .kind = name.is_mig ? DRA_MIG : DRA_GPU,
        .uuid = "",
        .parent_uuid = "",
        .profile = d->profile,
        .guessed = true,
        .minor = name.minor,
        .profile_id = name.profile_id,
        .placement = name.placement,
    };
    return true;
}

bool dra_find(struct dra *d, struct sv driver, struct sv pool, struct sv device,
              struct dra_device *out)
{
    return sv_equals(driver, SV(DRA_DRIVER)) &&
           (find_in_slices(d, pool, device, out) || find_by_name(d, device, out));
}

uint64_t dra_version(const struct dra *d)
{
    return d->version;
}

void dra_get_stats(const struct dra *d, struct dra_stats *out)
{
    *out =
        (struct dra_stats){.slices = d->slices.count, .devices = d->devices, .skipped = d->skipped};
}

int dra_new(struct dra **out)
{
    struct dra *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->slices = MAP_INIT(LIMIT_DRA_SLICES);
    d->pools = MAP_INIT(LIMIT_DRA_SLICES);
    *out = d;
    return 0;
}

void dra_free(struct dra *d)
{
    void *value;
    if (!d)
        return;
    for (size_t pos = 0; map_next(&d->pools, &pos, NULL, &value);)
        pool_free(value);
    for (size_t pos = 0; map_next(&d->slices, &pos, NULL, &value);)
        slice_unref(value);
    map_deinit(&d->pools);
    map_deinit(&d->slices);
    free(d);
}
