// SPDX-License-Identifier: Apache-2.0
// Input: labels as lines "name=value", an empty line, rules as YAML. Rules are read or refused with
// a reason; applied, they leave labels sorted, each once and with a value, and applied again to the
// same labels they do the same.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/relabel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int apply(const struct relabel_rules *rules, struct sv text, struct arena *arena,
                 struct labels *l)
{
    struct sv line;
    labels_init(l, arena);
    while (sv_next(&text, '\n', &line)) {
        size_t equals = sv_find_char(line, '=');
        struct sv name = sv_sub(line, 0, equals == (size_t)-1 ? line.len : equals);
        if (name.len && labels_set(l, name, sv_sub(line, name.len + 1, line.len)) < 0)
            return -ENOMEM;
    }
    return relabel_apply(rules, l);
}

static void check(const struct labels *l)
{
    for (size_t i = 0; i < l->count; i++) {
        assert(l->items[i].name.len && l->items[i].value.len);
        assert(i == 0 || sv_compare(l->items[i - 1].name, l->items[i].name) < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv input = {(const char *)data, size};
    size_t end = sv_find(input, SV("\n\n"));
    struct sv text = sv_sub(input, 0, end == (size_t)-1 ? 0 : end);
    struct yaml_document *d = NULL;
    struct relabel_rules *rules = NULL;
    struct error err = ERROR_INIT;
    if (yaml_parse(sv_sub(input, end == (size_t)-1 ? 0 : end + 2, size), "f", &d, NULL) < 0)
        return 0;
    int r = relabel_parse(yaml_root(d), "f", &rules, &err);
    yaml_document_free(d);
    if (r < 0) {
        assert(r == -EINVAL && !rules && err.text[0] && err.line);
        return 0;
    }
    struct arena arenas[2] = {ARENA_INIT(1u << 18), ARENA_INIT(1u << 18)};
    struct labels l[2];
    r = apply(rules, text, &arenas[0], &l[0]);
    assert(r == apply(rules, text, &arenas[1], &l[1]));
    assert(r == 0 || r == RELABEL_OUTCOME_DROP || r == -E2BIG || r == -ENOMEM);
    if (r == 0) {
        check(&l[0]);
        assert(labels_equal(&l[0], &l[1]));
    }
    arena_deinit(&arenas[0]);
    arena_deinit(&arenas[1]);
    relabel_free(rules);
    return 0;
}
