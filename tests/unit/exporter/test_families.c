// SPDX-License-Identifier: Apache-2.0
// Families of podgpu's own: what has shipped keeps its name, type and labels.
// data/podgpu-families.tsv is the list that docs and this test hold the code to; taking a row away
// or changing its labels breaks someone's dashboard.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"
#include "exporter/render_internal.h"

static const struct render_family *find(struct sv name)
{
    for (size_t i = 0; i < RENDER_FAMILY_COUNT; i++)
        if (sv_equals(sv_from(render_families[i].name), name))
            return &render_families[i];
    return NULL;
}

static void check_row(struct sv line)
{
    struct sv column[5], rest = line;
    for (size_t i = 0; i < ARRAY_SIZE(column); i++)
        if (!sv_next(&rest, '\t', &column[i]))
            fail_msg("fewer than 5 columns: %.*s", SV_FMT(line));
    const struct render_family *f = find(column[0]);
    if (!f)
        fail_msg("listed, but not in the code: %.*s", SV_FMT(column[0]));
    struct sv labels = sv_equals(column[2], SV("-")) ? SV("") : column[2];
    if (!sv_equals(sv_from(text_type_name(f->type, TEXT_FORMAT_OPENMETRICS)), column[1]) ||
        !sv_equals(sv_from(f->labels), labels) || !sv_equals(sv_from(f->help), column[4]))
        fail_msg("differs from the code: %.*s", SV_FMT(line));
}

static void families_of_podgpus_own_are_those_listed(void **state)
{
    (void)state;
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct error err = ERROR_INIT;
    assert_int_equal(file_read(SOURCE_ROOT "/data/podgpu-families.tsv", &text, &err), 0);
    struct sv rest = buf_sv(&text), line;
    assert_true(sv_next(&rest, '\n', &line));
    assert_true(sv_equals(line, SV("name\ttype\tlabels\tset\thelp")));
    size_t rows = 0;
    while (sv_next(&rest, '\n', &line)) {
        check_row(line);
        rows++;
    }
    assert_int_equal(rows, RENDER_FAMILY_COUNT);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_of_podgpus_own_are_those_listed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
