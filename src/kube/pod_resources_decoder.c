// SPDX-License-Identifier: Apache-2.0
// How it works. The answer is one protobuf message that is only a list of pods (field 1). It may
// have 5 MB and more, so it is never held: the walk over its outer fields is a state machine that
// takes any split, and the bytes of one pod at a time are gathered, decoded by protobuf-c into an
// arena, turned into rows, and forgotten. A pod that lies in one piece is decoded where it lies.
// The arena bounds what a hostile pod can cost: an empty submessage has 2 bytes on the wire and 50
// times that decoded. Wire format: protobuf.dev/programming-guides/encoding.
#include "kube/pod_resources.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/limits.h"
#include "kube/pod_devices.h"
#include "pod_resources.pb-c.h"

#define FIELD_POD 1 // ListPodResourcesResponse.pod_resources
#define VARINT_BYTES 10
#define LENGTH_MAX INT32_MAX // no protobuf message is longer

enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5, // 3 and 4, groups, are in no proto3 message
};

enum state {
    STATE_TAG,    // a field begins, or the message ends here
    STATE_LENGTH, // of a pod or of an unknown field
    STATE_VALUE,  // unknown varint
    STATE_SKIP,   // `left` bytes of an unknown field
    STATE_POD,    // `left` bytes of a pod
};

struct pod_resources_decoder {
    bool (*wanted)(void *user, struct sv resource, struct sv device_id);
    void *user;
    int error; // sticky
    enum state state;
    bool is_pod;     // the field whose length is read
    uint64_t varint; // being read
    unsigned varint_bytes;
    uint64_t left;
    char *pod; // bytes of a pod so far
    size_t pod_len, pod_capacity;
    struct arena scratch; // decoded pod
    struct pod_devices_owned *devices;
    struct row_index rows; // of devices, so that none comes twice
};

int pod_resources_decoder_new(bool (*wanted)(void *user, struct sv resource, struct sv device_id),
                              void *user, struct pod_resources_decoder **out)
{
    struct pod_resources_decoder *d = calloc(1, sizeof(*d));
    struct pod_devices_owned *devices = pod_devices_new();
    if (!d || !devices) {
        free(d);
        free(devices);
        return -ENOMEM;
    }
    *d = (struct pod_resources_decoder){
        .wanted = wanted,
        .user = user,
        .scratch = ARENA_INIT(LIMIT_POD_RESOURCES_DECODED_BYTES),
        .devices = devices,
        .rows = {.columns = ROW_ALL},
    };
    *out = d;
    return 0;
}

void pod_resources_decoder_free(struct pod_resources_decoder *d)
{
    if (!d)
        return;
    free(d->pod);
    arena_deinit(&d->scratch);
    row_index_deinit(&d->rows);
    if (d->devices)
        pod_devices_unref(&d->devices->list);
    free(d);
}

// --- Rows ---

// Copies the row's strings into the list; a name equal to the last row's shares its copy.
static bool keep_strings(struct pod_resources_decoder *d, struct pod_device *row)
{
    static const struct pod_device nothing;
    const struct pod_devices *list = &d->devices->list;
    const struct pod_device *last = list->count ? &list->rows[list->count - 1] : &nothing;
    struct {
        const char **column;
        const char *of_last;
    } columns[] = {
        {&row->namespace_name, last->namespace_name},
        {&row->pod, last->pod},
        {&row->container, last->container},
        {&row->resource, last->resource},
        {&row->device_id, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
        if (columns[i].of_last && strcmp(columns[i].of_last, *columns[i].column) == 0)
            *columns[i].column = columns[i].of_last;
        else
            *columns[i].column = arena_dup(&d->devices->strings, sv_from(*columns[i].column));
    }
    return !d->devices->strings.error;
}

// Rows beyond a cap are counted, not kept. 0, -ENOMEM.
static int add_row(struct pod_resources_decoder *d, struct pod_device row)
{
    struct sv id = sv_from(row.device_id);
    if (d->wanted && !d->wanted(d->user, sv_from(row.resource), id))
        return 0;
    struct pod_devices *list = &d->devices->list;
    if (row_index_find(&d->rows, list->rows, &row))
        return 0;
    int r = id.len > LIMIT_POD_DEVICE_ID_BYTES ? -EFBIG : 0;
    if (r == 0 && !keep_strings(d, &row))
        r = d->devices->strings.error;
    if (r == 0)
        r = pod_devices_append(d->devices, &row);
    if (r == 0)
        return row_index_add(&d->rows, list->rows, list->count - 1);
    if (r == -EFBIG)
        list->skipped++;
    return r == -EFBIG ? 0 : r;
}

static int add_pod(struct pod_resources_decoder *d, const Kubelet__PodResources *pod)
{
    d->devices->list.pods++;
    for (size_t c = 0; c < pod->n_containers; c++) {
        const Kubelet__ContainerResources *container = pod->containers[c];
        for (size_t i = 0; i < container->n_devices; i++) {
            const Kubelet__ContainerDevices *devices = container->devices[i];
            for (size_t id = 0; id < devices->n_device_ids; id++) {
                int r = add_row(d, (struct pod_device){.namespace_name = pod->namespace_,
                                                       .pod = pod->name,
                                                       .container = container->name,
                                                       .resource = devices->resource_name,
                                                       .device_id = devices->device_ids[id]});
                if (r < 0)
                    return r;
            }
        }
    }
    return 0;
}

// --- One pod ---

static void *scratch_alloc(void *arena, size_t bytes)
{
    return arena_alloc(arena, bytes);
}

static void scratch_free(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer; // all at once after the pod
}

static int decode_pod(struct pod_resources_decoder *d, struct sv bytes)
{
    ProtobufCAllocator allocator = {
        .alloc = scratch_alloc, .free = scratch_free, .allocator_data = &d->scratch};
    static const uint8_t empty[1];
    const uint8_t *data = bytes.len ? (const uint8_t *)bytes.ptr : empty;
    const Kubelet__PodResources *pod = kubelet__pod_resources__unpack(&allocator, bytes.len, data);
    int r = d->scratch.error;
    if (r == 0)
        r = pod ? add_pod(d, pod) : -EBADMSG;
    arena_reset(&d->scratch);
    return r;
}

// --- The walk ---

// Takes one byte of a varint. 1: complete in d->varint; 0: more to come; -EBADMSG.
static int take_varint(struct pod_resources_decoder *d, unsigned char byte)
{
    if (d->varint_bytes == 0)
        d->varint = 0;
    if (d->varint_bytes == VARINT_BYTES - 1 && byte > 1)
        return -EBADMSG; // beyond 64 bits, or longer than any varint
    d->varint |= (uint64_t)(byte & 0x7f) << (7 * d->varint_bytes);
    d->varint_bytes++;
    if (byte & 0x80)
        return 0;
    d->varint_bytes = 0;
    return 1;
}

static int begin_field(struct pod_resources_decoder *d)
{
    uint64_t field = d->varint >> 3;
    d->is_pod = field == FIELD_POD;
    if (field == 0 || d->varint > UINT32_MAX)
        return -EBADMSG;
    if (d->is_pod && (d->varint & 7) != WIRE_BYTES)
        return -EBADMSG;
    switch (d->varint & 7) {
    case WIRE_VARINT:
        d->state = STATE_VALUE;
        return 0;
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        d->left = (d->varint & 7) == WIRE_FIXED64 ? 8 : 4;
        d->state = STATE_SKIP;
        return 0;
    case WIRE_BYTES:
        d->state = STATE_LENGTH;
        return 0;
    default:
        return -EBADMSG;
    }
}

static int begin_bytes(struct pod_resources_decoder *d)
{
    if (d->varint > LENGTH_MAX)
        return -EBADMSG;
    if (d->is_pod && d->varint > LIMIT_POD_RESOURCES_POD_BYTES)
        return -EFBIG;
    d->left = d->varint;
    d->state = d->is_pod ? STATE_POD : STATE_SKIP;
    d->pod_len = 0;
    if (d->left > 0)
        return 0;
    d->state = STATE_TAG;
    return d->is_pod ? decode_pod(d, SV("")) : 0;
}

// One byte of a tag, a length or an unknown number.
static int walk_byte(struct pod_resources_decoder *d, unsigned char byte)
{
    int r = take_varint(d, byte);
    if (r <= 0)
        return r;
    if (d->state == STATE_TAG)
        return begin_field(d);
    if (d->state == STATE_LENGTH)
        return begin_bytes(d);
    d->state = STATE_TAG; // the number itself is nobody's
    return 0;
}

// Room for the whole pod, no more: lengths are bounded, and pages that stay untouched cost nothing.
static int reserve_pod(struct pod_resources_decoder *d, size_t bytes)
{
    if (bytes <= d->pod_capacity)
        return 0;
    free(d->pod);
    d->pod_capacity = 0;
    d->pod = malloc(bytes);
    if (!d->pod)
        return -ENOMEM;
    d->pod_capacity = bytes;
    return 0;
}

// `piece` belongs to the pod being read and is no longer than what is left of it.
static int take_pod_bytes(struct pod_resources_decoder *d, struct sv piece)
{
    bool whole = d->left == 0;
    if (whole && d->pod_len == 0)
        return decode_pod(d, piece);
    int r = d->pod_len == 0 ? reserve_pod(d, piece.len + (size_t)d->left) : 0;
    if (r < 0)
        return r;
    memcpy(d->pod + d->pod_len, piece.ptr, piece.len);
    d->pod_len += piece.len;
    return whole ? decode_pod(d, (struct sv){d->pod, d->pod_len}) : 0;
}

static int walk_bytes(struct pod_resources_decoder *d, struct sv *piece)
{
    size_t len = d->left < piece->len ? (size_t)d->left : piece->len;
    struct sv head = {piece->ptr, len};
    *piece = (struct sv){piece->ptr + len, piece->len - len};
    d->left -= len;
    int r = d->state == STATE_POD ? take_pod_bytes(d, head) : 0;
    if (d->left == 0)
        d->state = STATE_TAG;
    return r;
}

int pod_resources_decoder_feed(struct pod_resources_decoder *d, struct sv piece)
{
    while (piece.len > 0 && !d->error) {
        if (d->state == STATE_SKIP || d->state == STATE_POD) {
            d->error = walk_bytes(d, &piece);
            continue;
        }
        d->error = walk_byte(d, (unsigned char)*piece.ptr);
        piece = (struct sv){piece.ptr + 1, piece.len - 1};
    }
    return d->error;
}

int pod_resources_decoder_finish(struct pod_resources_decoder *d, struct pod_devices **out)
{
    if (!d->error && (d->state != STATE_TAG || d->varint_bytes > 0 || !d->devices))
        d->error = -EBADMSG;
    if (d->error)
        return d->error;
    *out = &d->devices->list;
    d->devices = NULL;
    d->error = -EBADMSG; // nothing may follow
    return 0;
}
