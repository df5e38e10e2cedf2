// SPDX-License-Identifier: Apache-2.0
// A counters file of any bytes: it parses, or it fails with a position inside it.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "exporter/counters.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct counter_list list = {0};
    struct error err = ERROR_INIT;
    struct sv text = {(const char *)data, size};
    int rc = counters_parse(text, "counters.csv", &list, &err);
    if (rc < 0) {
        unsigned lines = 1;
        for (size_t i = 0; i < size; i++)
            lines += data[i] == '\n';
        check(err.code == rc && err.text[0] && err.line >= 1 && err.line <= lines);
        return 0;
    }
    check(list.count <= LIMIT_COUNTERS);
    for (size_t i = 0; i < list.count; i++) {
        const struct counter *c = &list.rows[i];
        check(field_find_by_name(sv_from(c->name)) == c->field);
        check(sv_is_utf8(sv_from(c->help)) && c->type <= COUNTER_OTHER);
        check(i == 0 || list.rows[i - 1].field->id < c->field->id);
    }
    counter_list_deinit(&list);
    return 0;
}
