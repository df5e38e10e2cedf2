// SPDX-License-Identifier: Apache-2.0
// What a scenario says about pods, claims and ResourceSlices that only objects of Kubernetes tell:
// checked here, kept as JSON whose leaves are texts, and made into objects by pods.py.
#include "scenario_internal.h"

#include <errno.h>

#define EXTRA_BYTES (64u << 10)
#define EXTRA_DEPTH 8

static void add_text(struct buf *out, struct sv text)
{
    buf_add_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '"' || c == '\\')
            buf_add_char(out, '\\');
        if (c < 0x20)
            buf_add_fmt(out, "\\u%04x", c);
        else
            buf_add_char(out, (char)c);
    }
    buf_add_char(out, '"');
}

static int add_value(struct compile *c, const struct yaml_node *y, unsigned depth, struct buf *out)
{
    if (depth == EXTRA_DEPTH)
        return compile_refuse(c, y, "this is too deep");
    if (y->kind == YAML_SCALAR) {
        add_text(out, y->scalar);
        return 0;
    }
    bool mapping = y->kind == YAML_MAPPING;
    buf_add_char(out, mapping ? '{' : '[');
    for (const struct yaml_node *x = y->first; x; x = x->next) {
        if (mapping) {
            add_text(out, x->key);
            buf_add_char(out, ':');
        }
        int rc = add_value(c, x, depth + 1, out);
        if (rc < 0)
            return rc;
        if (x->next)
            buf_add_char(out, ',');
    }
    buf_add_char(out, mapping ? '}' : ']');
    return 0;
}

int compile_extra(struct compile *c, const struct yaml_node *y, const char *const *keys,
                  uint32_t *out)
{
    struct buf text = BUF_INIT(EXTRA_BYTES);
    const char *comma = "";
    int rc = 0;
    buf_add_char(&text, '{');
    for (const char *const *key = keys; rc == 0 && *key; key++) {
        const struct yaml_node *value = yaml_find(y, *key);
        if (!value)
            continue;
        buf_add_str(&text, comma);
        add_text(&text, sv_from(*key));
        buf_add_char(&text, ':');
        rc = add_value(c, value, 0, &text);
        comma = ",";
    }
    buf_add_char(&text, '}');
    if (rc == 0 && text.error != 0)
        rc = compile_refuse(c, y, "this is too long");
    if (rc == 0)
        rc = compile_at(c, y, sim_add_string(c->n, buf_sv(&text), out, c->err));
    buf_deinit(&text);
    return rc;
}

static int check_items(struct compile *c, const struct yaml_node *list, const char *const *known,
                       const char *required)
{
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next) {
        rc = yaml_check_keys(y, c->file, known, c->err);
        if (rc == 0 && !yaml_find(y, required))
            rc = error_set_at(c->err, -EINVAL, c->file, y->line, y->column, "expected '%s'",
                              required);
    }
    return rc;
}

// Lists within the items of a list.
static int check_inner(struct compile *c, const struct yaml_node *list, const char *key,
                       const char *const *known, const char *required)
{
    int rc = 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next)
        rc = check_items(c, yaml_find(y, key), known, required);
    return rc;
}

int compile_node_extra(struct compile *c, const struct yaml_node *root)
{
    static const char *const keys[] = {"claims", "slices", NULL};
    static const char *const claim[] = {"name", "namespace", "uid", "devices", NULL};
    static const char *const given[] = {"driver", "pool", "device", "share_id", "admin", NULL};
    static const char *const slice[] = {"name",       "driver", "pool",    "node",
                                        "generation", "count",  "devices", NULL};
    static const char *const device[] = {"name", "type", "uuid", "parent", "profile", NULL};
    const struct yaml_node *claims = yaml_find(root, "claims"), *slices = yaml_find(root, "slices");
    int rc = check_items(c, claims, claim, "name");
    if (rc == 0)
        rc = check_inner(c, claims, "devices", given, "device");
    if (rc == 0)
        rc = check_items(c, slices, slice, "name");
    if (rc == 0)
        rc = check_inner(c, slices, "devices", device, "name");
    return rc == 0 ? compile_extra(c, root, keys, &c->n->extra) : rc;
}

int compile_pod_extra(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    static const char *const keys[] = {"labels", "annotations", "owner", "claims", "qos", NULL};
    static const char *const owner[] = {"kind", "name", "api_version", NULL};
    static const char *const mappings[] = {"labels", "annotations", "owner", "claims"};
    const struct yaml_node *of = yaml_find(y, "owner"), *x;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(mappings); i++) {
        if ((x = yaml_find(y, mappings[i])) != NULL)
            rc = compile_expect(c, x, YAML_MAPPING);
    }
    if (rc == 0 && of)
        rc = yaml_check_keys(of, c->file, owner, c->err);
    return rc == 0 ? compile_extra(c, y, keys, out) : rc;
}
