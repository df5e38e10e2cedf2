// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/num.h"
#include "kube/pod_record_internal.h"

static struct sv text_at(const struct json_node *object, const char *key)
{
    const struct json_node *n = json_find(object, key);
    return n && n->kind == JSON_STRING ? n->string : (struct sv){0};
}

// The children of an array, NULL when there is none.
static const struct json_node *items_of(const struct json_node *object, const char *key,
                                        enum json_kind kind)
{
    const struct json_node *n = json_find(object, key);
    return n && n->kind == kind ? n->first : NULL;
}

// --- "2026-12-01T00:05:42Z" ---

static bool digits_at(struct sv s, size_t at, size_t len, int64_t *out)
{
    uint64_t value;
    if (num_parse_u64(sv_sub(s, at, len), 0, 9999, &value) < 0)
        return false;
    *out = (int64_t)value;
    return true;
}

// Days since 1970 of a date of the Gregorian calendar: years begin in March, so that the leap day
// is the last of one.
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t days_before_month = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5;
    return year * 365 + year / 4 - year / 100 + year / 400 + days_before_month + day - 1 - 719468;
}

// As Kubernetes writes it: UTC, whole seconds. 0: something else.
static int64_t seconds_of(struct sv s)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:ddZ";
    int64_t year, month, day, hour, minute, second;
    if (s.len != sizeof(shape) - 1)
        return 0;
    for (size_t i = 0; i < s.len; i++)
        if (shape[i] != 'd' && shape[i] != s.ptr[i])
            return 0;
    if (!digits_at(s, 0, 4, &year) || !digits_at(s, 5, 2, &month) || !digits_at(s, 8, 2, &day) ||
        !digits_at(s, 11, 2, &hour) || !digits_at(s, 14, 2, &minute) ||
        !digits_at(s, 17, 2, &second))
        return 0;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        second > 60)
        return 0;
    return ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
}

// --- The object ---

static void read_owners(struct pod_record_reader *r, const struct json_node *metadata)
{
    const struct json_node *n = items_of(metadata, "ownerReferences", JSON_ARRAY);
    for (; n; n = n->next) {
        const struct json_node *controller = json_find(n, "controller");
        if (controller && controller->kind == JSON_BOOL && controller->boolean)
            pod_record_add_controller(r, text_at(n, "kind"), text_at(n, "name"));
    }
}

static void read_metadata(struct pod_record_reader *r, const struct json_node *metadata)
{
    r->record.namespace_name = text_at(metadata, "namespace");
    r->record.name = text_at(metadata, "name");
    r->record.uid = text_at(metadata, "uid");
    r->record.created_s = seconds_of(text_at(metadata, "creationTimestamp"));
    const struct json_node *n = items_of(metadata, "labels", JSON_OBJECT);
    for (; n; n = n->next)
        if (n->kind == JSON_STRING)
            pod_record_add_label(r, n->key, n->string);
    for (n = items_of(metadata, "annotations", JSON_OBJECT); n; n = n->next)
        if (n->kind == JSON_STRING)
            pod_record_add_annotation(r, n->key, n->string);
    read_owners(r, metadata);
}

static void read_status(struct pod_record_reader *r, const struct json_node *status)
{
    static const char *const lists[] = {"containerStatuses", "initContainerStatuses",
                                        "ephemeralContainerStatuses"};
    const struct json_node *n;
    r->record.phase = text_at(status, "phase");
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        for (n = items_of(status, lists[i], JSON_ARRAY); n; n = n->next)
            pod_record_add_container(r, text_at(n, "name"), text_at(n, "containerID"), i == 1);
    for (n = items_of(status, "resourceClaimStatuses", JSON_ARRAY); n; n = n->next)
        pod_record_add_claim(r, text_at(n, "name"), text_at(n, "resourceClaimName"));
}

int pod_record_from_json(const struct json_node *pod, struct arena *a, struct pod_record *out)
{
    struct pod_record_reader r = {.arena = a};
    read_metadata(&r, json_find(pod, "metadata"));
    read_status(&r, json_find(pod, "status"));
    return pod_record_finish(&r, out);
}
