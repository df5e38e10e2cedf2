// SPDX-License-Identifier: Apache-2.0
// Parsing fills two sorted sets of ids; choosing walks the device list. Ranges are written out id
// by id, bounded by SELECTION_MAX_IDS a letter, so a range like 0-4000000000 fails instead of
// filling memory.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "gpu/selection.h"

struct id_set {
    uint32_t *ids;
    size_t count, room;
    bool has_reversed;
    uint32_t reversed_from, reversed_to;
};

void selection_deinit(struct selection *s)
{
    free(s->gpu_ids);
    free(s->instance_ids);
    *s = (struct selection){0};
}

static int id_set_add(struct id_set *set, uint32_t id, struct error *err)
{
    if (set->count == set->room) {
        if (set->room >= SELECTION_MAX_IDS)
            return error_set(err, -EINVAL, "more than %d device ids", SELECTION_MAX_IDS);
        size_t room = set->room ? set->room * 2 : 16;
        uint32_t *grown = realloc(set->ids, room * sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory");
        set->ids = grown;
        set->room = room;
    }
    set->ids[set->count++] = id;
    return 0;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void id_set_sort(struct id_set *set)
{
    if (!set->count)
        return;
    qsort(set->ids, set->count, sizeof(*set->ids), compare_ids);
    size_t kept = 1;
    for (size_t i = 1; i < set->count; i++)
        if (set->ids[i] != set->ids[kept - 1])
            set->ids[kept++] = set->ids[i];
    set->count = kept;
}

static int parse_id(struct sv text, uint32_t *out, struct error *err)
{
    uint64_t id;
    int rc = num_parse_u64(text, 0, UINT32_MAX - 1, &id);
    if (rc == -ERANGE)
        return error_set(err, -EINVAL, "device id '%.*s' is too large", SV_FMT(text));
    if (rc < 0)
        return error_set(err, -EINVAL, "expected a device id (a number), but found '%.*s'",
                         SV_FMT(text));
    *out = (uint32_t)id;
    return 0;
}

// n, or a-b. A range whose end lies before its start is empty, as in dcgm-exporter.
static int parse_item(struct sv item, struct id_set *set, struct error *err)
{
    struct sv first, rest = item;
    uint32_t from, to;
    if (sv_find_char(item, '-') == (size_t)-1) {
        int rc = parse_id(item, &from, err);
        return rc < 0 ? rc : id_set_add(set, from, err);
    }
    (void)sv_next(&rest, '-', &first);
    if (!first.len || !rest.len || sv_find_char(rest, '-') != (size_t)-1)
        return error_set(err, -EINVAL, "range can only be '<number>-<number>', but found '%.*s'",
                         SV_FMT(item));
    int rc = parse_id(first, &from, err);
    if (rc == 0)
        rc = parse_id(rest, &to, err);
    if (rc == 0 && to < from && !set->has_reversed) {
        set->has_reversed = true;
        set->reversed_from = from;
        set->reversed_to = to;
    }
    for (uint64_t id = from; rc == 0 && id <= to; id++)
        rc = id_set_add(set, (uint32_t)id, err);
    return rc;
}

static int parse_list(struct sv list, struct id_set *set, struct error *err)
{
    for (size_t start = 0; start <= list.len;) {
        size_t comma = sv_find_char(sv_sub(list, start, list.len), ',');
        size_t len = comma == (size_t)-1 ? list.len - start : comma;
        int rc = parse_item(sv_trim(sv_sub(list, start, len), " "), set, err);
        if (rc < 0)
            return rc;
        start += len + 1;
    }
    id_set_sort(set);
    return 0;
}

// One of g, g:list, i, i:list.
static int parse_term(struct sv term, struct selection *s, struct error *err)
{
    size_t colon = sv_find_char(term, ':');
    bool has_list = colon != (size_t)-1;
    struct sv letter = has_list ? sv_sub(term, 0, colon) : term;
    struct sv list = has_list ? sv_sub(term, colon + 1, term.len) : SV("");
    if (sv_find_char(list, ':') != (size_t)-1)
        return error_set(err, -EINVAL, "'%.*s': there can only be one range after a letter",
                         SV_FMT(term));
    if (sv_equals(letter, SV("f")))
        return error_set(err, -EINVAL,
                         "no range and no other option can go with 'f', but found '%.*s'",
                         SV_FMT(term));
    bool gpus = sv_equals(letter, SV("g"));
    if (!gpus && !sv_equals(letter, SV("i")))
        return error_set(err, -EINVAL,
                         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', "
                         "but found '%.*s'",
                         SV_FMT(term));
    if (gpus ? s->gpus : s->instances)
        return error_set(err, -EINVAL, "'%.*s' is given twice", SV_FMT(letter));
    struct id_set set = {0};
    int rc = has_list ? parse_list(list, &set, err) : 0;
    if (rc < 0) {
        free(set.ids);
        return rc;
    }
    if (set.has_reversed && !s->has_reversed) {
        s->has_reversed = true;
        s->reversed_from = set.reversed_from;
        s->reversed_to = set.reversed_to;
    }
    if (gpus) {
        s->gpus = true;
        s->all_gpus = !has_list;
        s->gpu_ids = set.ids;
        s->gpu_count = set.count;
    } else {
        s->instances = true;
        s->all_instances = !has_list;
        s->instance_ids = set.ids;
        s->instance_count = set.count;
    }
    return 0;
}

int selection_parse(struct sv text, struct selection *out, struct error *err)
{
    struct selection s = {0};
    struct sv trimmed = sv_trim(text, " ");
    if (sv_equals(trimmed, SV("f"))) {
        s.flexible = true;
        *out = s;
        return 0;
    }
    int rc = 0;
    for (size_t start = 0; rc == 0 && start <= trimmed.len;) {
        size_t plus = sv_find_char(sv_sub(trimmed, start, trimmed.len), '+');
        size_t len = plus == (size_t)-1 ? trimmed.len - start : plus;
        rc = parse_term(sv_trim(sv_sub(trimmed, start, len), " "), &s, err);
        start += len + 1;
    }
    if (rc < 0) {
        selection_deinit(&s);
        return rc;
    }
    *out = s;
    return 0;
}

static bool has_id(const uint32_t *ids, size_t count, uint32_t id)
{
    return count && bsearch(&id, ids, count, sizeof(*ids), compare_ids);
}

static int check_present(const uint32_t *ids, size_t id_count, bool instances,
                         const struct selection_device *devices, size_t count, struct error *err)
{
    for (size_t i = 0; i < id_count; i++) {
        bool found = false;
        for (size_t d = 0; d < count && !found; d++)
            found = devices[d].is_instance == instances && devices[d].id == ids[i];
        if (!found)
            return error_set(err, -ENODEV, "couldn't find requested %s ID '%u'",
                             instances ? "GPU instance" : "GPU", ids[i]);
    }
    return 0;
}

// f: a GPU that has instances gives way to them.
static size_t choose_flexible(const struct selection_device *devices, size_t count, size_t *chosen)
{
    size_t n = 0;
    for (size_t d = 0; d < count; d++) {
        bool split = false;
        for (size_t i = 0; !devices[d].is_instance && i < count && !split; i++)
            split = devices[i].is_instance && devices[i].parent == d;
        if (!split)
            chosen[n++] = d;
    }
    return n;
}

int selection_apply(const struct selection *s, const struct selection_device *devices, size_t count,
                    size_t *chosen, size_t *out_count, struct error *err)
{
    if (s->flexible) {
        *out_count = choose_flexible(devices, count, chosen);
        return 0;
    }
    int rc = check_present(s->gpu_ids, s->gpu_count, false, devices, count, err);
    if (rc == 0)
        rc = check_present(s->instance_ids, s->instance_count, true, devices, count, err);
    if (rc < 0)
        return rc;
    size_t n = 0;
    for (size_t d = 0; d < count; d++)
        if (!devices[d].is_instance && s->gpus &&
            (s->all_gpus || has_id(s->gpu_ids, s->gpu_count, devices[d].id)))
            chosen[n++] = d;
    for (size_t d = 0; d < count; d++)
        if (devices[d].is_instance && s->instances &&
            (s->all_instances || has_id(s->instance_ids, s->instance_count, devices[d].id)))
            chosen[n++] = d;
    *out_count = n;
    return 0;
}

static bool has_owner(const struct selection *s, uint32_t id)
{
    return s->flexible || (s->gpus && (s->all_gpus || has_id(s->gpu_ids, s->gpu_count, id)));
}

static bool has_part(const struct selection *s, uint32_t id)
{
    return s->flexible ||
           (s->instances && (s->all_instances || has_id(s->instance_ids, s->instance_count, id)));
}

bool selection_has_gpu_links(const struct selection *s, uint32_t gpu)
{
    return has_owner(s, gpu);
}

struct part_list {
    const struct selection_part *parts;
    size_t count;
    const bool *chosen;
};

static bool is_chosen(const struct part_list *l, bool is_part, uint32_t id)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->chosen[i] && l->parts[i].is_part == is_part && l->parts[i].id == id)
            return true;
    return false;
}

// The first of the ids that was not chosen, for being nowhere.
static const uint32_t *find_missing(const struct part_list *l, bool is_part, const uint32_t *ids,
                                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_chosen(l, is_part, ids[i]))
            return &ids[i];
    return NULL;
}

static void say_missing(char out[SELECTION_MISSING_BYTES], const char *what, const uint32_t *id)
{
    out[0] = '\0';
    if (id)
        (void)snprintf(out, SELECTION_MISSING_BYTES, "couldn't find requested %s '%u'", what, *id);
}

void selection_apply_parts(const struct selection *s, enum selection_kind kind,
                           const struct selection_part *parts, size_t count, bool *chosen,
                           struct selection_missing *out_missing)
{
    bool switches = kind == SELECTION_SWITCHES;
    const struct part_list list = {parts, count, chosen};
    for (size_t i = 0; i < count; i++)
        chosen[i] = parts[i].is_part ? chosen[parts[i].owner] && has_part(s, parts[i].id)
                                     : has_owner(s, parts[i].id);
    const uint32_t *owner = find_missing(&list, false, s->gpu_ids, s->gpu_count);
    const uint32_t *part = find_missing(&list, true, s->instance_ids, s->instance_count);
    say_missing(out_missing->owner, switches ? "NvSwitch ID" : "CPU ID", owner);
    say_missing(out_missing->part, switches ? "NvLink" : "CPU core", part);
    for (size_t i = 0; i < count; i++)
        if (owner || (part && parts[i].is_part && !switches))
            chosen[i] = false;
}
