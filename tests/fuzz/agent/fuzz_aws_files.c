// SPDX-License-Identifier: Apache-2.0
// Two shared files, a NUL between them: lines are views into the text, in order; each profile of
// each section is a plan that ends, or is refused with a reason.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/aws/profile.h"

static bool is_inside(struct sv piece, struct sv text)
{
    return piece.len == 0 ||
           (piece.ptr >= text.ptr && piece.ptr + piece.len <= text.ptr + text.len);
}

static void check_lines(const struct ini *ini, struct sv text)
{
    unsigned line = 0;
    for (size_t i = 0; i < ini->count; i++) {
        const struct ini_line *l = &ini->lines[i];
        assert(l->line > line);
        line = l->line;
        assert(is_inside(l->section, text) && is_inside(l->key, text) && is_inside(l->value, text));
    }
}

static void plan(const struct aws_profiles *p, struct sv name)
{
    struct aws_plan plan;
    struct error err = ERROR_INIT;
    int r = aws_profile_plan(p, name, &plan, &err);
    assert(r == 0 || (r == -EINVAL && err.text[0]));
    if (r == 0) {
        assert(plan.role_count <= LIMIT_AWS_ROLES);
        assert((plan.source == AWS_SOURCE_KEYS) == (plan.secret_key.len > 0));
        assert((plan.source == AWS_SOURCE_WEB_IDENTITY) == (plan.token_file.len > 0));
    }
}

static void plan_sections(const struct aws_profiles *p, const struct ini *ini)
{
    for (size_t i = 0, sections = 0; i < ini->count && sections < 32; i++) {
        if (ini->lines[i].key.len > 0)
            continue;
        struct sv name = ini->lines[i].section;
        plan(p, name);
        if (sv_starts_with(name, SV("profile ")))
            plan(p, sv_sub(name, 8, name.len));
        sections++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv all = {(const char *)data, size};
    size_t cut = sv_find_char(all, '\0');
    struct sv first = sv_sub(all, 0, cut == (size_t)-1 ? size : cut);
    struct sv second = sv_sub(all, cut == (size_t)-1 ? size : cut + 1, size);
    struct aws_profiles p = {.credentials_file = "credentials", .config_file = "config"};
    struct error err = ERROR_INIT;
    if (ini_parse(first, "credentials", &p.credentials, &err) < 0 ||
        ini_parse(second, "config", &p.config, &err) < 0) {
        assert(err.text[0]);
    } else {
        check_lines(&p.credentials, first);
        check_lines(&p.config, second);
        plan_sections(&p, &p.credentials);
        plan_sections(&p, &p.config);
        plan(&p, SV("default"));
    }
    ini_deinit(&p.credentials);
    ini_deinit(&p.config);
    return 0;
}
