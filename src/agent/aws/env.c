// SPDX-License-Identifier: Apache-2.0
// What the environment alone decides: the variables, and the URL of a service. Partitions are told
// by the prefix of the region. Source: the AWS General Reference, "AWS service endpoints"; the AWS
// SDKs and Tools reference guide, "Service-specific endpoints".
#include "agent/aws/credentials.h"

#include <errno.h>

#include "agent/aws/env.h"

const char *aws_env_get(const struct aws_env *e, const char *name)
{
    struct sv wanted = sv_from(name);
    for (char *const *p = e->environment; *p; p++) {
        struct sv entry = sv_from(*p);
        if (sv_starts_with(entry, wanted) && entry.len > wanted.len + 1 &&
            entry.ptr[wanted.len] == '=')
            return *p + wanted.len + 1;
    }
    return NULL;
}

bool aws_env_is_true(const struct aws_env *e, const char *name)
{
    const char *value = aws_env_get(e, name);
    return value && sv_equals_nocase(sv_from(value), SV("true"));
}

bool aws_region_is_valid(struct sv region)
{
    for (size_t i = 0; i < region.len; i++) {
        char c = region.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c == '-' && i > 0)))
            return false;
    }
    return region.len > 0 && region.len <= AWS_REGION_BYTES_MAX;
}

const struct aws_partition *aws_partition_of(struct sv region)
{
    static const struct aws_partition partitions[] = {
        {"cn-", "aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "cn-north-1"},
        {"us-gov-", "aws-us-gov", "amazonaws.com", "api.aws", "us-gov-west-1"},
        {"us-iso-", "aws-iso", "c2s.ic.gov", "api.aws.ic.gov", "us-iso-east-1"},
        {"us-isob-", "aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", "us-isob-east-1"},
        {"us-isof-", "aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", "us-isof-south-1"},
        {"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", "eu-isoe-west-1"},
        {"eusc-", "aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", "eusc-de-east-1"},
        {"", "aws", "amazonaws.com", "api.aws", "us-east-1"},
    };
    size_t i = 0;
    while (!sv_starts_with(region, sv_from(partitions[i].prefix)) &&
           !sv_equals(region, sv_from(partitions[i].name)))
        i++;
    return &partitions[i];
}

// AWS_ENDPOINT_URL_<SERVICE>, by the service's id in the SDKs.
static const char *override_of(const struct aws_env *env, const char *service)
{
    static const struct {
        const char *service, *variable;
    } known[] = {
        {"logs", "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"},
        {"sts", "AWS_ENDPOINT_URL_STS"},
        {"ec2", "AWS_ENDPOINT_URL_EC2"},
        {"monitoring", "AWS_ENDPOINT_URL_CLOUDWATCH"},
        {"aps-workspaces", "AWS_ENDPOINT_URL_AMP"},
    };
    if (aws_env_is_true(env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))
        return NULL;
    const char *url = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(known) && !url; i++)
        if (strcmp(known[i].service, service) == 0)
            url = aws_env_get(env, known[i].variable);
    return url ? url : aws_env_get(env, "AWS_ENDPOINT_URL");
}

void aws_endpoint(const struct aws_env *env, const char *service, const char *region,
                  bool dualstack, struct buf *out)
{
    const char *override = override_of(env, service);
    if (override) {
        struct sv url = sv_from(override);
        while (url.len > 0 && url.ptr[url.len - 1] == '/')
            url.len--;
        buf_add_sv(out, url);
        return;
    }
    if (!region || !aws_region_is_valid(sv_from(region))) {
        out->error = out->error ? out->error : -EINVAL;
        return;
    }
    const struct aws_partition *p = aws_partition_of(sv_from(region));
    bool dual = dualstack || aws_env_is_true(env, "AWS_USE_DUALSTACK_ENDPOINT");
    bool fips = aws_env_is_true(env, "AWS_USE_FIPS_ENDPOINT");
    // In GovCloud the plain names are those of FIPS endpoints.
    if (strcmp(p->name, "aws-us-gov") == 0 && !dual)
        fips = false;
    buf_add_str(out, "https://");
    buf_add_str(out, service);
    buf_add_str(out, fips ? "-fips." : ".");
    buf_add_str(out, region);
    buf_add_char(out, '.');
    buf_add_str(out, dual ? p->dualstack_suffix : p->suffix);
}
