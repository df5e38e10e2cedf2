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

// ListPodResourcesResponse.pod_resources, AllocatableResourcesResponse.devices: what an answer is a
// list of. The comments below say "pod" for either.
#define FIELD_POD 1
#define CDI_CLAIM "k8s.gpu.nvidia.com/claim=" // then the claim's UID, '-' and the device's name
#define UID_BYTES 36
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
    bool allocatable; // the answer is GetAllocatableResources'
    int error;        // sticky
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

static int new_decoder(bool (*wanted)(void *user, struct sv resource, struct sv device_id),
                       void *user, bool allocatable, struct pod_resources_decoder **out)
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
        .allocatable = allocatable,
        .scratch = ARENA_INIT(LIMIT_POD_RESOURCES_DECODED_BYTES),
        .devices = devices,
        .rows = {.columns = ROW_HELD},
    };
    *out = d;
    return 0;
}

int pod_resources_decoder_new(bool (*wanted)(void *user, struct sv resource, struct sv device_id),
                              void *user, struct pod_resources_decoder **out)
{
    return new_decoder(wanted, user, false, out);
}

int pod_resources_decoder_new_allocatable(bool (*wanted)(void *user, struct sv resource,
                                                         struct sv device_id),
                                          void *user, struct pod_resources_decoder **out)
{
    return new_decoder(wanted, user, true, out);
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

static bool is_wanted(const struct pod_resources_decoder *d, const struct pod_device *row)
{
    const char *resource = row->claim ? row->claim->driver : row->resource;
    return !d->wanted || d->wanted(d->user, sv_from(resource), sv_from(row->device_id));
}

static bool is_too_long(const struct pod_device *row)
{
    return strlen(row->device_id) > LIMIT_POD_DEVICE_ID_BYTES;
}

// Rows beyond a cap are counted, not kept. 0, -ENOMEM.
static int add_row(struct pod_resources_decoder *d, struct pod_device row)
{
    struct pod_devices *list = &d->devices->list;
    if (!is_wanted(d, &row) || row_index_find(&d->rows, list->rows, &row))
        return 0;
    int r = is_too_long(&row) ? -EFBIG : pod_devices_copy(d->devices, &row, &row);
    if (r == 0)
        r = pod_devices_append(d->devices, &row);
    if (r == 0)
        return row_index_add(&d->rows, list->rows, list->count - 1);
    if (r == -EFBIG)
        list->skipped++;
    return r == -EFBIG ? 0 : r;
}

static int add_devices(struct pod_resources_decoder *d, const struct pod_device *of,
                       const Kubelet__ContainerDevices *devices)
{
    struct pod_device row = *of;
    int r = 0;
    row.resource = devices->resource_name;
    for (size_t id = 0; id < devices->n_device_ids && r == 0; id++) {
        row.device_id = devices->device_ids[id];
        r = add_row(d, row);
    }
    return r;
}

// The UID of the claim from the CDI name of one of its devices; "": it has no such name. uid has
// room for it.
static const char *claim_uid(const Kubelet__ClaimResource *resource, char uid[UID_BYTES + 1])
{
    for (size_t i = 0; i < resource->n_cdi_devices; i++) {
        struct sv name = sv_from(resource->cdi_devices[i]->name);
        if (!sv_starts_with(name, SV(CDI_CLAIM)))
            continue;
        struct sv rest = sv_sub(name, sizeof(CDI_CLAIM) - 1, name.len);
        if (rest.len <= UID_BYTES || rest.ptr[UID_BYTES] != '-')
            continue;
        sv_copy(uid, UID_BYTES + 1, sv_sub(rest, 0, UID_BYTES));
        return uid;
    }
    return "";
}

static int add_claim(struct pod_resources_decoder *d, const struct pod_device *of,
                     const Kubelet__DynamicResource *claim)
{
    int r = 0;
    for (size_t i = 0; i < claim->n_claim_resources && r == 0; i++) {
        const Kubelet__ClaimResource *resource = claim->claim_resources[i];
        char uid[UID_BYTES + 1];
        const struct pod_device_claim c = {
            .name = claim->claim_name,
            .namespace_name = claim->claim_namespace,
            .uid = claim_uid(resource, uid),
            .driver = resource->driver_name,
            .pool = resource->pool_name,
            .share_id = resource->share_id,
        };
        struct pod_device row = *of;
        row.resource = "";
        row.device_id = resource->device_name;
        row.claim = &c;
        r = add_row(d, row);
    }
    return r;
}

static int add_container(struct pod_resources_decoder *d, const Kubelet__PodResources *pod,
                         const Kubelet__ContainerResources *container)
{
    const struct pod_device of = {
        .namespace_name = pod->namespace_, .pod = pod->name, .container = container->name};
    int r = 0;
    for (size_t i = 0; i < container->n_devices && r == 0; i++)
        r = add_devices(d, &of, container->devices[i]);
    for (size_t i = 0; i < container->n_dynamic_resources && r == 0; i++)
        r = add_claim(d, &of, container->dynamic_resources[i]);
    return r;
}

static int add_pod(struct pod_resources_decoder *d, const Kubelet__PodResources *pod)
{
    int r = 0;
    d->devices->list.pods++;
    for (size_t c = 0; c < pod->n_containers && r == 0; c++)
        r = add_container(d, pod, pod->containers[c]);
    return r;
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

static int decode_list_pod(struct pod_resources_decoder *d, ProtobufCAllocator *allocator,
                           struct sv bytes)
{
    const Kubelet__PodResources *pod =
        kubelet__pod_resources__unpack(allocator, bytes.len, (const uint8_t *)bytes.ptr);
    if (d->scratch.error)
        return d->scratch.error;
    return pod ? add_pod(d, pod) : -EBADMSG;
}

static int decode_allocatable(struct pod_resources_decoder *d, ProtobufCAllocator *allocator,
                              struct sv bytes)
{
    static const struct pod_device nobody = {.namespace_name = "", .pod = "", .container = ""};
    const Kubelet__ContainerDevices *devices =
        kubelet__container_devices__unpack(allocator, bytes.len, (const uint8_t *)bytes.ptr);
    if (d->scratch.error)
        return d->scratch.error;
    return devices ? add_devices(d, &nobody, devices) : -EBADMSG;
}

static int decode_pod(struct pod_resources_decoder *d, struct sv bytes)
{
    ProtobufCAllocator allocator = {
        .alloc = scratch_alloc, .free = scratch_free, .allocator_data = &d->scratch};
    if (bytes.len == 0)
        bytes = SV(""); // its pointer may be NULL
    int r = d->allocatable ? decode_allocatable(d, &allocator, bytes)
                           : decode_list_pod(d, &allocator, bytes);
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
