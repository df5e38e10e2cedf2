// SPDX-License-Identifier: Apache-2.0
#include "agent/scrape_protocol.h"

#include <errno.h>

static const struct protocol {
    const char *name;
    const char *media_type;
    bool escapes; // can carry names of any UTF-8, when told so
    bool known;   // we can read it
    enum parse_format format;
} protocols[] = {
    {"OpenMetricsText1.0.0", "application/openmetrics-text;version=1.0.0", true, true,
     PARSE_OPENMETRICS},
    {"OpenMetricsText0.0.1", "application/openmetrics-text;version=0.0.1", false, true,
     PARSE_OPENMETRICS},
    {"PrometheusText1.0.0", "text/plain;version=1.0.0", true, true, PARSE_PROMETHEUS},
    {"PrometheusText0.0.4", "text/plain;version=0.0.4", false, true, PARSE_PROMETHEUS},
    {"PrometheusProto", NULL, false, false, PARSE_PROMETHEUS},
};

static const struct protocol *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++) {
        if (strcmp(protocols[i].name, name) == 0)
            return &protocols[i];
    }
    return NULL;
}

// Weights go down from one more than there are protocols, also over one that we cannot read.
void scrape_protocol_add_accept(struct buf *out, const struct prom_job *job)
{
    size_t count = job->protocol_count ? job->protocol_count : ARRAY_SIZE(protocols) - 1;
    unsigned weight = ARRAY_SIZE(protocols) + 1;
    for (size_t i = 0; i < count && weight > 1; i++, weight--) {
        const struct protocol *p = job->protocol_count ? find(job->protocols[i]) : &protocols[i];
        if (!p || !p->known)
            continue;
        buf_add_str(out, p->media_type);
        if (p->escapes && !job->legacy_names)
            buf_add_str(out, ";escaping=allow-utf-8");
        buf_add_fmt(out, ";q=0.%u,", weight);
    }
    buf_add_fmt(out, "*/*;q=0.%u", weight);
}

int scrape_protocol_format(struct sv content_type, const char *fallback, enum parse_format *out,
                           struct error *err)
{
    struct sv type = sv_trim(sv_sub(content_type, 0, sv_find_char(content_type, ';')), " \t");
    const struct protocol *p = find(fallback);
    if (sv_equals_nocase(type, SV("application/openmetrics-text"))) {
        *out = PARSE_OPENMETRICS;
    } else if (sv_equals_nocase(type, SV("text/plain"))) {
        *out = PARSE_PROMETHEUS;
    } else if (sv_equals_nocase(type, SV("application/vnd.google.protobuf"))) {
        return error_set(err, -EINVAL, "answered in protobuf, which was not asked for");
    } else if (!p || !p->known) {
        return error_set(err, -EINVAL,
                         "Content-Type '%.*s' is none of metrics, and the fallback protocol %s "
                         "cannot be read",
                         SV_FMT(sv_cut(content_type, 100)), fallback);
    } else {
        *out = p->format;
    }
    return 0;
}
