// SPDX-License-Identifier: Apache-2.0
// Input: one or more files, with a line "---" between them. They are read or refused with reasons,
// one line each; what is read is whole and within the caps, and a file is equal to itself.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/cwagent_config.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_declaration(const struct cw_declaration *d, bool compat)
{
    assert(d->matcher && d->file && d->line && d->separator.len);
    assert(d->source_label_count && d->selector_count);
    assert(!compat || sv_equals(d->separator, SV(";")));
    for (size_t i = 0; i < d->selector_count; i++)
        assert(d->selectors[i] && d->selector_texts[i].ptr);
    for (size_t i = 0; i < d->dimension_count; i++) {
        const struct cw_dimension_set *set = &d->dimensions[i];
        assert(set->count <= (compat ? 10 : 30));
        for (size_t k = 0; k < set->count; k++) {
            assert(set->names[k].len && set->names[k].ptr[0] != ':');
            assert(k == 0 || sv_compare(set->names[k - 1], set->names[k]) < 0);
        }
    }
}

static void check_config(const struct cw_config *c)
{
    assert(c->refs == 1 && c->ignored && c->metric_namespace && c->spool_directory);
    assert(c->flush_ns && c->spool_max_bytes && c->spool_max_age_ns);
    assert(!c->has_prometheus || !c->prometheus_path != !c->prometheus_text);
    assert(c->declaration_count <= LIMIT_CW_DECLARATIONS && c->unit_count <= LIMIT_CW_UNITS);
    for (size_t i = 0; i < c->declaration_count; i++)
        check_declaration(&c->declarations[i], c->compat);
    for (size_t i = 0; i < c->unit_count; i++) {
        assert(cw_unit_find(sv_from(c->units[i].unit)) == c->units[i].unit);
        assert(i == 0 || sv_compare(c->units[i - 1].metric, c->units[i].metric) < 0);
    }
}

static int parse(const struct cw_text *texts, size_t count, bool compat)
{
    char *environment[] = {"P=x", NULL};
    struct cw_sources from = {.environment = environment, .compat = compat};
    struct cw_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 26), warnings = BUF_INIT(1u << 26);
    int r = cw_config_parse(texts, count, &from, &c, &errors, &warnings);
    assert(!warnings.len || warnings.data[warnings.len - 1] == '\n');
    if (r < 0) {
        assert(r == -EINVAL && !c && errors.len && errors.data[errors.len - 1] == '\n');
    } else {
        assert(errors.len == 0);
        check_config(c);
        cw_config_unref(c);
    }
    buf_deinit(&errors);
    buf_deinit(&warnings);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv rest = {(const char *)data, size}, separator = SV("\n---\n");
    struct cw_text texts[4];
    size_t count = 0;
    for (size_t end = 0; count < 2 && end != (size_t)-1; count++) {
        end = sv_find(rest, separator);
        texts[count] = (struct cw_text){sv_sub(rest, 0, end == (size_t)-1 ? rest.len : end), "f"};
        rest = sv_sub(rest, end == (size_t)-1 ? rest.len : end + separator.len, rest.len);
    }
    int r = parse(texts, count, false);
    (void)parse(texts, count, true);
    for (size_t i = 0; i < count; i++)
        texts[count + i] = texts[i];
    assert(parse(texts, count * 2, false) == r);
    return 0;
}
