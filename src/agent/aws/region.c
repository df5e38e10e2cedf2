// SPDX-License-Identifier: Apache-2.0
// The region, by the order of credentials.h.
#include <errno.h>

#include "agent/aws/env.h"
#include "agent/aws/lookup.h"
#include "codec/json.h"

#define REGION_PATH "/latest/meta-data/placement/region"
#define DOCUMENT_PATH "/latest/dynamic/instance-identity/document"

static enum step_result by_environment(struct aws_lookup *l)
{
    const char *region = aws_env_get(l->env, "AWS_REGION");
    if (!region)
        region = aws_env_get(l->env, "AWS_DEFAULT_REGION");
    if (region)
        return aws_lookup_found(l, sv_from(region));
    return aws_lookup_nothing(l, "AWS_REGION and AWS_DEFAULT_REGION are not set");
}

static enum step_result by_profile(struct aws_lookup *l)
{
    struct aws_profile_files files;
    enum step_result r;
    if (aws_profile_files_load(&files, l->env, &l->err) < 0) {
        r = STEP_NOTHING;
    } else {
        struct sv region = aws_profile_get(&files.profiles, buf_sv(&files.name), "region");
        r = region.len > 0 ? aws_lookup_found(l, region)
                           : aws_lookup_nothing(l, "the profile has none");
    }
    aws_profile_files_deinit(&files);
    return r;
}

static void on_metadata(void *user, enum aws_imds_outcome outcome, struct sv body,
                        int64_t server_time_s)
{
    struct aws_lookup *l = user;
    struct sv region = sv_trim(body, " \r\n");
    (void)server_time_s;
    if (outcome != AWS_IMDS_FOUND) {
        l->err = l->imds.err;
        return aws_lookup_go_on(l, STEP_NOTHING);
    }
    aws_lookup_go_on(l, aws_region_is_valid(region)
                            ? aws_lookup_found(l, region)
                            : aws_lookup_nothing(l, "instance metadata: not a region"));
}

static enum step_result by_metadata(struct aws_lookup *l)
{
    return aws_lookup_imds(l, REGION_PATH, on_metadata) ? STEP_PENDING : STEP_NOTHING;
}

static void on_document(void *user, enum aws_imds_outcome outcome, struct sv body,
                        int64_t server_time_s)
{
    struct aws_lookup *l = user;
    struct json_document *d = NULL;
    enum step_result r = STEP_NOTHING;
    (void)server_time_s;
    if (outcome != AWS_IMDS_FOUND) {
        l->err = l->imds.err;
    } else if (json_parse(body, "", &d, NULL) < 0) {
        r = aws_lookup_nothing(l, "instance identity document: not JSON");
    } else {
        const struct json_node *n = json_find(json_root(d), "region");
        bool ok = n && n->kind == JSON_STRING && aws_region_is_valid(n->string);
        r = ok ? aws_lookup_found(l, n->string)
               : aws_lookup_nothing(l, "instance identity document: no region");
    }
    json_document_free(d);
    aws_lookup_go_on(l, r);
}

// Where the metadata has no such path (emulators, old stacks). One that does not answer at all is
// not asked twice.
static enum step_result by_document(struct aws_lookup *l)
{
    if (!l->imds.ask.env || l->err.code != -ENOENT || l->imds.is_off)
        return aws_lookup_nothing(l, "its identity document: not asked for");
    return aws_lookup_imds(l, DOCUMENT_PATH, on_document) ? STEP_PENDING : STEP_NOTHING;
}

int aws_region_find(const struct aws_env *env, const char *configured,
                    void (*done)(void *user, const char *text, const struct error *err), void *user,
                    struct aws_lookup **out)
{
    static enum step_result (*const steps[])(struct aws_lookup * l) = {
        aws_lookup_configured, by_environment, by_profile, aws_lookup_task,
        by_metadata,           by_document,    NULL,
    };
    struct aws_lookup wanted = {.env = env, .done = done, .user = user, .steps = steps};
    return aws_lookup_start(&wanted, configured, out);
}
