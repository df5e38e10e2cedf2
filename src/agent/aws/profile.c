// SPDX-License-Identifier: Apache-2.0
// A profile with a role points to where the keys for assuming it come from, which may be another
// such profile: the chain is followed to its end, each role kept on the way, each profile seen only
// once. Source: the AWS SDKs and Tools reference guide, "Assume role credential provider".
#include "agent/aws/profile.h"

#include <assert.h>
#include <errno.h>

#include "base/num.h"

#define BLANK " \t"
#define SESSION_S_MIN 900
#define SESSION_S_MAX 43200

// The profile that a section of the config file describes: [default], [profile NAME], [profile
// "NAME"].
static bool is_config_section_of(struct sv section, struct sv name)
{
    struct sv prefix = SV("profile");
    if (!sv_starts_with(section, prefix) || section.len == prefix.len)
        return sv_equals(section, SV("default")) && sv_equals(name, SV("default"));
    struct sv rest = sv_sub(section, prefix.len, section.len);
    struct sv own = sv_trim(rest, BLANK);
    if (own.len == rest.len && own.ptr[0] != '"' && own.ptr[0] != '\'')
        return false; // "profiles"
    if (own.len >= 2 && (own.ptr[0] == '"' || own.ptr[0] == '\'') &&
        own.ptr[own.len - 1] == own.ptr[0])
        own = sv_sub(own, 1, own.len - 2);
    return sv_equals(own, name);
}

static bool is_section_of(const struct aws_profiles *p, const struct ini *i, struct sv section,
                          struct sv name)
{
    return i == &p->config ? is_config_section_of(section, name) : sv_equals(section, name);
}

static const struct ini_line *find(const struct aws_profiles *p, const struct ini *ini,
                                   struct sv name, struct sv key)
{
    for (size_t i = ini->count; i-- > 0;) {
        const struct ini_line *l = &ini->lines[i];
        if (sv_equals_nocase(l->key, key) && is_section_of(p, ini, l->section, name))
            return l;
    }
    return NULL;
}

bool aws_profile_exists(const struct aws_profiles *p, struct sv name)
{
    return find(p, &p->credentials, name, SV("")) || find(p, &p->config, name, SV(""));
}

struct sv aws_profile_get(const struct aws_profiles *p, struct sv name, const char *key)
{
    const struct ini_line *l = find(p, &p->credentials, name, sv_from(key));
    if (!l || l->value.len == 0)
        l = find(p, &p->config, name, sv_from(key));
    return l ? l->value : SV("");
}

// --- The plan ---

struct planner {
    const struct aws_profiles *profiles;
    struct aws_plan *plan;
    struct error *err;
    struct sv seen[LIMIT_AWS_ROLES + 1];
    size_t seen_count;
};

static struct sv get(const struct planner *p, struct sv name, const char *key)
{
    return aws_profile_get(p->profiles, name, key);
}

static int refuse(const struct planner *p, struct sv name, const char *what)
{
    return error_set(p->err, -EINVAL, "profile '%.*s': %s", SV_FMT(sv_cut(name, 80)), what);
}

static int read_role(const struct planner *p, struct sv name, struct aws_role *out)
{
    struct aws_role role = {
        .arn = get(p, name, "role_arn"),
        .session_name = get(p, name, "role_session_name"),
        .external_id = get(p, name, "external_id"),
    };
    struct sv duration = get(p, name, "duration_seconds");
    if (duration.len > 0 &&
        num_parse_u64(duration, SESSION_S_MIN, SESSION_S_MAX, &role.duration_s) < 0)
        return refuse(p, name, "duration_seconds is not a number from 900 to 43200");
    if (get(p, name, "mfa_serial").len > 0)
        return refuse(p, name, "mfa_serial needs a person, which is not supported");
    *out = role;
    return 0;
}

// Keys that stand in the profile itself. 0; 1: none do.
static int plan_keys(struct planner *p, struct sv name)
{
    struct sv access = get(p, name, "aws_access_key_id");
    struct sv secret = get(p, name, "aws_secret_access_key");
    if (access.len == 0 && secret.len == 0)
        return 1;
    if (access.len == 0 || secret.len == 0)
        return refuse(p, name,
                      access.len > 0 ? "aws_access_key_id without aws_secret_access_key"
                                     : "aws_secret_access_key without aws_access_key_id");
    p->plan->source = AWS_SOURCE_KEYS;
    p->plan->access_key = access;
    p->plan->secret_key = secret;
    p->plan->session_token = get(p, name, "aws_session_token");
    return 0;
}

static int plan_without_role(struct planner *p, struct sv name)
{
    int r = plan_keys(p, name);
    if (r <= 0)
        return r;
    if (get(p, name, "credential_process").len > 0)
        return refuse(p, name, "credential_process is not supported");
    if (get(p, name, "sso_session").len > 0 || get(p, name, "sso_start_url").len > 0)
        return refuse(p, name, "single sign-on (sso_*) is not supported");
    if (p->seen_count > 1)
        return refuse(p, name, "is a source_profile but has no credentials");
    p->plan->source = AWS_SOURCE_NONE;
    return 0;
}

static int plan_credential_source(struct planner *p, struct sv name, struct sv source)
{
    static const struct {
        struct sv name;
        enum aws_source source;
    } sources[] = {
        {SV("Environment"), AWS_SOURCE_ENVIRONMENT},
        {SV("EcsContainer"), AWS_SOURCE_CONTAINER},
        {SV("Ec2InstanceMetadata"), AWS_SOURCE_IMDS},
    };
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        if (sv_equals_nocase(source, sources[i].name)) {
            p->plan->source = sources[i].source;
            return 0;
        }
    }
    return refuse(p, name,
                  "credential_source is none of Environment, EcsContainer, Ec2InstanceMetadata");
}

static bool was_seen(const struct planner *p, struct sv name)
{
    for (size_t i = 0; i < p->seen_count; i++)
        if (sv_equals(p->seen[i], name))
            return true;
    return false;
}

// One profile with a role. 0: the plan is complete; 1: go on at *next.
static int plan_role(struct planner *p, struct sv name, struct sv *next)
{
    struct sv source_profile = get(p, name, "source_profile");
    struct sv credential_source = get(p, name, "credential_source");
    struct sv token_file = get(p, name, "web_identity_token_file");
    struct aws_role role;
    int r = read_role(p, name, &role);
    if (r < 0)
        return r;
    if (source_profile.len > 0 && credential_source.len > 0)
        return refuse(p, name, "both source_profile and credential_source");
    if (token_file.len > 0 && source_profile.len == 0 && credential_source.len == 0) {
        p->plan->source = AWS_SOURCE_WEB_IDENTITY;
        p->plan->token_file = token_file;
        p->plan->web_role = role;
        return 0;
    }
    if (p->plan->role_count == LIMIT_AWS_ROLES)
        return refuse(p, name, "too many roles on one another");
    p->plan->roles[p->plan->role_count++] = role;
    if (credential_source.len > 0)
        return plan_credential_source(p, name, credential_source);
    if (source_profile.len == 0 || sv_equals(source_profile, name)) {
        r = plan_keys(p, name);
        return r > 0 ? refuse(p, name, "role_arn without source_profile or credential_source") : r;
    }
    if (was_seen(p, source_profile))
        return refuse(p, name, "source_profile leads back to a profile before it");
    if (!aws_profile_exists(p->profiles, source_profile))
        return refuse(p, name, "source_profile is in neither file");
    *next = source_profile;
    return 1;
}

int aws_profile_plan(const struct aws_profiles *profiles, struct sv name, struct aws_plan *out,
                     struct error *err)
{
    struct aws_plan plan = {.source = AWS_SOURCE_NONE};
    struct planner p = {.profiles = profiles, .plan = &plan, .err = err};
    int r = 1;
    while (r > 0) {
        assert(p.seen_count < ARRAY_SIZE(p.seen));
        p.seen[p.seen_count++] = name;
        plan.profile = name;
        r = get(&p, name, "role_arn").len > 0 ? plan_role(&p, name, &name)
                                              : plan_without_role(&p, name);
    }
    if (r == 0)
        *out = plan;
    return r;
}
