// SPDX-License-Identifier: Apache-2.0
// Arenas take their memory in blocks of 4 KiB, so texts are long enough for several of them.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "agent/discover_document.h"
#include "agent/target.h"
#include "base/buf.h"
#include "base/clock.h"

static const struct label extra = {SV("__meta_filepath"), SV("/f")};
static char json[20000], yaml[20000];

static void make_documents(void)
{
    struct buf text = BUF_INIT(sizeof(json));
    buf_add_str(&text, "[{\"targets\":[\"h:1\",\"h:2\"],\"labels\":{\"a\":\"");
    for (size_t i = 0; i < 5000; i++)
        buf_add_char(&text, 'v');
    buf_add_str(&text, "\",\"__param_token\":\"t\"}}]");
    sv_copy(json, sizeof(json), buf_sv(&text));
    sv_copy(yaml, sizeof(yaml), buf_sv(&text)); // JSON is YAML
    buf_deinit(&text);
}

static void build(const struct labels *found)
{
    static char name[] = "j", path[] = "/m", scheme[] = "http", param[] = "p", value[] = "v";
    struct prom_pair params[] = {{param, value}};
    const struct prom_job job = {.name = name,
                                 .metrics_path = path,
                                 .scheme = scheme,
                                 .interval_ns = 60 * NS_PER_S,
                                 .timeout_ns = NS_PER_S,
                                 .params = params,
                                 .param_count = 1};
    struct arena arena = ARENA_INIT(1u << 20);
    struct target_spec spec;
    struct error err = ERROR_INIT;
    int r = target_build(&job, found, &arena, &spec, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_true(sv_ends_with(sv_from(spec.shown_url), SV("/m?p=v&token=xxxxx")));
    arena_deinit(&arena);
}

static void read_and_build(int (*read)(struct sv text, const char *name, const struct label *extra,
                                       struct target_group **out, struct error *err),
                           const char *text)
{
    struct target_group *g = NULL;
    struct error err = ERROR_INIT;
    int r = read(sv_from(text), "f", &extra, &g, &err);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed && !g);
        return;
    }
    assert_int_equal(g->count, 2);
    build(&g->targets[0]);
    target_group_unref(g);
}

static void read_json(void)
{
    read_and_build(discover_document_read_json, json);
}

static void read_yaml(void)
{
    read_and_build(discover_document_read_yaml, yaml);
}

static void targets_survive_each_failed_allocation(void **state)
{
    make_documents();
    assert_true(allocation_sweep(read_json) >= 8);
    assert_true(allocation_sweep(read_yaml) >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_survive_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
