// SPDX-License-Identifier: Apache-2.0
// Only what is wanted of a Pod is walked into; its spec, by far the largest part, is one skip.
#include <errno.h>

#include "codec/protobuf_wire.h"
#include "kube/pod_record_internal.h"

enum { // numbers of fields
    POD_METADATA = 1,
    POD_STATUS = 3,
    META_NAME = 1,
    META_NAMESPACE = 3,
    META_UID = 5,
    META_CREATED = 8,
    META_LABELS = 11,
    META_ANNOTATIONS = 12,
    META_OWNERS = 13,
    TIME_SECONDS = 1,
    OWNER_KIND = 1,
    OWNER_NAME = 3,
    OWNER_CONTROLLER = 6,
    STATUS_PHASE = 1,
    STATUS_CONTAINERS = 8,
    STATUS_INIT_CONTAINERS = 10,
    STATUS_EPHEMERAL_CONTAINERS = 13,
    STATUS_CLAIMS = 15,
    CONTAINER_NAME = 1,
    CONTAINER_ID = 8,
    CLAIM_NAME = 1,
    CLAIM_CLAIM = 2,
    ENTRY_KEY = 1, // of a map
    ENTRY_VALUE = 2,
};

// Two text fields of a small message, the last of each. False: malformed.
static bool read_pair(struct sv bytes, uint32_t first, uint32_t second, struct sv out[2])
{
    struct protobuf_message m = protobuf_message_from(bytes);
    struct protobuf_field f;
    out[0] = out[1] = (struct sv){0};
    while (protobuf_next(&m, &f)) {
        if (f.type != PROTOBUF_BYTES)
            continue;
        if (f.number == first)
            out[0] = f.bytes;
        else if (f.number == second)
            out[1] = f.bytes;
    }
    return !m.malformed;
}

static bool read_number(struct sv bytes, uint32_t number, uint64_t *out)
{
    struct protobuf_message m = protobuf_message_from(bytes);
    struct protobuf_field f;
    *out = 0;
    while (protobuf_next(&m, &f))
        if (f.number == number && f.type == PROTOBUF_VARINT)
            *out = f.value;
    return !m.malformed;
}

static bool read_owner(struct pod_record_reader *r, struct sv bytes)
{
    struct sv pair[2];
    uint64_t controller;
    if (!read_pair(bytes, OWNER_KIND, OWNER_NAME, pair) ||
        !read_number(bytes, OWNER_CONTROLLER, &controller))
        return false;
    if (controller)
        pod_record_add_controller(r, pair[0], pair[1]);
    return true;
}

static bool read_created(struct pod_record_reader *r, struct sv bytes)
{
    uint64_t seconds;
    if (!read_number(bytes, TIME_SECONDS, &seconds))
        return false;
    // Go's zero time is far before 1970.
    r->record.created_s = seconds > INT64_MAX ? 0 : (int64_t)seconds;
    return true;
}

static bool read_metadata_field(struct pod_record_reader *r, const struct protobuf_field *f)
{
    struct sv pair[2];
    switch (f->number) {
    case META_NAME:
        r->record.name = pod_record_text(f->bytes);
        return true;
    case META_NAMESPACE:
        r->record.namespace_name = pod_record_text(f->bytes);
        return true;
    case META_UID:
        r->record.uid = pod_record_text(f->bytes);
        return true;
    case META_CREATED:
        return read_created(r, f->bytes);
    case META_LABELS:
    case META_ANNOTATIONS:
        if (!read_pair(f->bytes, ENTRY_KEY, ENTRY_VALUE, pair))
            return false;
        if (f->number == META_LABELS)
            pod_record_add_label(r, pair[0], pair[1]);
        else
            pod_record_add_annotation(r, pair[0], pair[1]);
        return true;
    case META_OWNERS:
        return read_owner(r, f->bytes);
    default:
        return true;
    }
}

static bool read_status_field(struct pod_record_reader *r, const struct protobuf_field *f)
{
    struct sv pair[2];
    switch (f->number) {
    case STATUS_PHASE:
        r->record.phase = pod_record_text(f->bytes);
        return true;
    case STATUS_CONTAINERS:
    case STATUS_INIT_CONTAINERS:
    case STATUS_EPHEMERAL_CONTAINERS:
        if (!read_pair(f->bytes, CONTAINER_NAME, CONTAINER_ID, pair))
            return false;
        pod_record_add_container(r, pair[0], pair[1], f->number == STATUS_INIT_CONTAINERS);
        return true;
    case STATUS_CLAIMS:
        if (!read_pair(f->bytes, CLAIM_NAME, CLAIM_CLAIM, pair))
            return false;
        pod_record_add_claim(r, pair[0], pair[1]);
        return true;
    default:
        return true;
    }
}

static bool read_message(struct pod_record_reader *r, struct sv bytes,
                         bool (*take)(struct pod_record_reader *, const struct protobuf_field *))
{
    struct protobuf_message m = protobuf_message_from(bytes);
    struct protobuf_field f;
    while (protobuf_next(&m, &f))
        if (f.type == PROTOBUF_BYTES && !take(r, &f))
            return false;
    return !m.malformed;
}

static bool read_pod_field(struct pod_record_reader *r, const struct protobuf_field *f)
{
    if (f->number == POD_METADATA)
        return read_message(r, f->bytes, read_metadata_field);
    if (f->number == POD_STATUS)
        return read_message(r, f->bytes, read_status_field);
    return true;
}

int pod_record_from_protobuf(struct sv bytes, struct arena *a, struct pod_record *out)
{
    struct pod_record_reader r = {.arena = a};
    if (!read_message(&r, bytes, read_pod_field))
        return -EBADMSG;
    return pod_record_finish(&r, out);
}
