// SPDX-License-Identifier: Apache-2.0
// Texts, times, signals and loads of a scenario.
#include "scenario_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/num.h"

// Gives an error from a value's parser the position of the value.
int compile_at(struct compile *c, const struct yaml_node *y, int rc)
{
    if (rc >= 0 || c->err->line != 0)
        return rc;
    struct error inner = *c->err;
    return error_set_at(c->err, rc, c->file, y ? y->line : 0, y ? y->column : 0, "%s", inner.text);
}

int compile_refuse(struct compile *c, const struct yaml_node *y, const char *what)
{
    return error_set_at(c->err, -EINVAL, c->file, y->line, y->column, "%s", what);
}

int compile_expect(struct compile *c, const struct yaml_node *y, enum yaml_kind kind)
{
    static const char *const names[] = {"expected a value", "expected a list",
                                        "expected a mapping"};
    return y->kind == kind ? 0 : compile_refuse(c, y, names[kind]);
}

// --- Texts: bytes, so that a driver's broken text can be written down ---

// Takes one byte of a text: `\xHH` is that byte, and so is what YAML's own "\xHH" gives, a
// character from U+0080 to U+00FF.
static char take_byte(const struct sv *s, size_t *at)
{
    const char *p = s->ptr + *at;
    size_t left = s->len - *at;
    *at += 1;
    if (left >= 4 && p[0] == '\\' && p[1] == 'x' && num_hex_digit(p[2]) >= 0 &&
        num_hex_digit(p[3]) >= 0) {
        *at += 3;
        return (char)(num_hex_digit(p[2]) << 4 | num_hex_digit(p[3]));
    }
    unsigned char lead = (unsigned char)p[0];
    if (left >= 2 && (lead == 0xc2 || lead == 0xc3)) {
        *at += 1;
        return (char)((lead & 3) << 6 | (p[1] & 0x3f));
    }
    return p[0];
}

int compile_text(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    char text[512];
    size_t len = 0;
    for (size_t at = 0; at < y->scalar.len;) {
        if (len == sizeof(text))
            return compile_refuse(c, y, "text is too long");
        text[len++] = take_byte(&y->scalar, &at);
    }
    return compile_at(c, y, sim_add_string(c->n, (struct sv){text, len}, out, c->err));
}

int compile_u32(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    int64_t value;
    int rc = yaml_read_i64(y, c->file, 0, UINT32_MAX, &value, c->err);
    if (rc == 0)
        *out = (uint32_t)value;
    return rc;
}

int compile_time(struct compile *c, const struct yaml_node *y, int64_t fallback, int64_t *out)
{
    *out = fallback;
    return y ? compile_at(c, y, sim_parse_time(y->scalar, out, c->err)) : 0;
}

// --- Signals and loads ---

static int add_signal(struct compile *c, uint32_t gpu, enum sim_field field,
                      const struct yaml_node *y, int64_t at)
{
    struct sim_segment s;
    int rc = sim_parse_signal(y->scalar, sim_field_table[field].kind, &s, c->err);
    s.from_ns = at;
    if (rc == 0)
        rc = sim_add_segment(c->n, gpu, field, &s, c->err);
    return compile_at(c, y, rc);
}

// prefix: "kubelet." for the node's own.
static int compile_signal(struct compile *c, uint32_t gpu, const char *prefix,
                          const struct yaml_node *y)
{
    char name[96];
    int wrote = snprintf(name, sizeof(name), "%s%.*s", prefix, SV_FMT(y->key));
    enum sim_field field = wrote > 0 ? sim_parse_field(sv_from(name)) : SIM_FIELD_COUNT;
    if (field == SIM_FIELD_COUNT)
        return compile_refuse(c, y, "no such signal");
    // A GPU's own line replaces its model's.
    atomic_store(&c->n->gpus[gpu].fields[field], SIM_NONE);
    if (y->kind == YAML_SCALAR)
        return add_signal(c, gpu, field, y, 0);
    int rc = compile_expect(c, y, YAML_SEQUENCE);
    for (const struct yaml_node *step = y->first; rc == 0 && step; step = step->next) {
        static const char *const known[] = {"at", "is", NULL};
        const struct yaml_node *is = yaml_find(step, "is");
        int64_t at;
        rc = yaml_check_keys(step, c->file, known, c->err);
        if (rc == 0 && !is)
            rc = compile_refuse(c, step, "expected {at: TIME, is: VALUE}");
        if (rc == 0)
            rc = compile_time(c, yaml_find(step, "at"), 0, &at);
        if (rc == 0)
            rc = add_signal(c, gpu, field, is, at);
    }
    return rc;
}

int compile_signals(struct compile *c, uint32_t gpu, const char *prefix, const struct yaml_node *y)
{
    int rc = y ? compile_expect(c, y, YAML_MAPPING) : 0;
    for (const struct yaml_node *s = y ? y->first : NULL; rc == 0 && s; s = s->next)
        rc = compile_signal(c, gpu, prefix, s);
    return rc;
}

static int add_load(struct compile *c, _Atomic uint32_t *list, const struct yaml_node *y,
                    int64_t at)
{
    struct sim_load l;
    int rc = sim_parse_load(y->scalar, &l, c->err);
    l.from_ns = at;
    if (rc == 0)
        rc = sim_add_load(c->n, list, &l, c->err);
    return compile_at(c, y, rc);
}

int compile_load(struct compile *c, _Atomic uint32_t *list, const struct yaml_node *y)
{
    atomic_store(list, SIM_NONE);
    if (y->kind == YAML_SCALAR)
        return add_load(c, list, y, 0);
    int rc = compile_expect(c, y, YAML_SEQUENCE);
    for (const struct yaml_node *step = y->first; rc == 0 && step; step = step->next) {
        const struct yaml_node *is = yaml_find(step, "is");
        int64_t at;
        if (!is)
            return compile_refuse(c, step, "expected {at: TIME, is: LOAD}");
        rc = compile_time(c, yaml_find(step, "at"), 0, &at);
        if (rc == 0)
            rc = add_load(c, list, is, at);
    }
    return rc;
}
