// SPDX-License-Identifier: Apache-2.0
// Any bytes as a list of pods (split or whole: the same), as a pod in protobuf and in JSON, and as
// names of logs: what is read is within the limits, and no text has a NUL inside.
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"
#include "kube/message_list.h"
#include "kube/pod_logs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_text(struct sv s)
{
    check(s.len == 0 || !memchr(s.ptr, '\0', s.len));
}

static void check_record(const struct pod_record *r)
{
    check(r->name.len > 0 && r->namespace_name.len > 0 && r->created_s >= 0);
    check(r->label_count <= LIMIT_POD_RECORD_LABELS);
    check(r->container_count <= LIMIT_POD_RECORD_CONTAINERS);
    check(r->claim_count <= LIMIT_POD_RECORD_CLAIMS);
    const struct sv texts[] = {r->namespace_name, r->name,       r->uid,       r->config_hash,
                               r->phase,          r->owner_kind, r->owner_name};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        check_text(texts[i]);
    check((r->owner_kind.len > 0) == (r->owner_name.len > 0));
    for (size_t i = 0; i < r->label_count; i++) {
        check(i == 0 || sv_compare(r->labels[i - 1].key, r->labels[i].key) < 0);
        check_text(r->labels[i].key);
        check_text(r->labels[i].value);
    }
    for (size_t i = 0; i < r->container_count; i++) {
        check_text(r->containers[i].name);
        check(r->containers[i].id.len == 0 || r->containers[i].id.len == 64);
    }
}

static void read_protobuf(struct sv bytes)
{
    struct arena a = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct pod_record r;
    if (pod_record_from_protobuf(bytes, &a, &r) == 0)
        check_record(&r);
    arena_deinit(&a);
}

static void read_json(struct sv text)
{
    struct arena a = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct json_document *d = NULL;
    struct pod_record r;
    if (json_parse(text, "pod", &d, NULL) == 0 && pod_record_from_json(json_root(d), &a, &r) == 0)
        check_record(&r);
    json_document_free(d);
    arena_deinit(&a);
}

struct items {
    size_t count, bytes;
};

static int on_item(void *user, struct sv bytes)
{
    struct items *items = user;
    items->count++;
    items->bytes += bytes.len;
    read_protobuf(bytes);
    return 0;
}

static int read_list(struct sv message, size_t piece, struct items *out)
{
    struct message_list l;
    *out = (struct items){0};
    message_list_init(&l, 1u << 16, on_item, out);
    for (size_t at = 0; at < message.len; at += piece)
        if (message_list_feed(&l, sv_sub(message, at, piece)) < 0)
            break;
    int r = message_list_finish(&l);
    message_list_deinit(&l);
    return r;
}

static void read_names(struct sv name)
{
    struct pod_record r;
    struct pod_record_container c;
    if (pod_logs_parse_directory(name, &r))
        check(r.namespace_name.len + r.name.len + r.uid.len + 2 == name.len && r.uid.len >= 32);
    if (pod_logs_parse_link(name, &r, &c))
        check(r.namespace_name.len + r.name.len + c.name.len + c.id.len + 7 == name.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sv bytes = {(const char *)data, size};
    struct items whole, pieces;
    size_t piece = size ? data[size - 1] % 16 + 1 : 1;
    int r = read_list(bytes, size ? size : 1, &whole);
    check(read_list(bytes, piece, &pieces) == r);
    check(whole.count == pieces.count && whole.bytes == pieces.bytes);
    read_protobuf(bytes);
    read_json(bytes);
    read_names(bytes);
    return 0;
}
