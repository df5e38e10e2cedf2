// SPDX-License-Identifier: Apache-2.0
// Include from one file of a test, after cmocka.h.
#pragma once

#include <errno.h>

#include "agent/cwagent_config.h"

// A prometheus section with that in it.
#define PROMETHEUS(text) "{\"logs\": {\"metrics_collected\": {\"prometheus\": {" text "}}}}"
#define EMF(text) PROMETHEUS("\"emf_processor\": {" text "}")
#define DECLARATION(text) EMF("\"metric_declaration\": [{" text "}]")
#define PODGPU(text) "{\"podgpu\": {" text "}}"

struct parsed {
    int result;
    struct cw_config *config; // NULL unless result is 0
    struct buf errors, warnings;
};

static inline struct parsed parse_texts(const struct cw_text *texts, size_t count,
                                        const struct cw_sources *from)
{
    struct parsed p = {.errors = BUF_INIT(1u << 20), .warnings = BUF_INIT(1u << 20)};
    p.result = cw_config_parse(texts, count, from, &p.config, &p.errors, &p.warnings);
    return p;
}

static inline void parsed_deinit(struct parsed *p)
{
    cw_config_unref(p->config);
    buf_deinit(&p->errors);
    buf_deinit(&p->warnings);
}

static inline struct parsed parse_one(const char *text, bool compat)
{
    struct cw_text one = {sv_from(text), "f"};
    struct cw_sources from = {.compat = compat};
    return parse_texts(&one, 1, &from);
}

// Whether reading the text ends so, with those errors and warnings; says so if not.
static inline bool parses(const char *text, bool compat, int result, const char *errors,
                          const char *warnings)
{
    struct parsed p = parse_one(text, compat);
    bool good = p.result == result && !!p.config == (result == 0) &&
                sv_equals(buf_sv(&p.errors), sv_from(errors)) &&
                sv_equals(buf_sv(&p.warnings), sv_from(warnings));
    if (!good)
        print_error("%s\ngives %d, errors\n%swarnings\n%sexpected %d, errors\n%swarnings\n%s", text,
                    p.result, buf_cstr(&p.errors), buf_cstr(&p.warnings), result, errors, warnings);
    parsed_deinit(&p);
    return good;
}

// The configuration of a text without problems; the caller's to unref.
static inline struct cw_config *parse_good(const char *text, bool compat)
{
    struct parsed p = parse_one(text, compat);
    if (p.result != 0)
        fail_msg("%s\n%s", text, buf_cstr(&p.errors));
    struct cw_config *c = TAKE_PTR(p.config);
    parsed_deinit(&p);
    return c;
}

static inline void assert_sv_equals(struct sv s, const char *expected)
{
    if (!sv_equals(s, sv_from(expected)))
        fail_msg("'%.*s' is not '%s'", SV_FMT(s), expected);
}
