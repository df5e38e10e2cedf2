// SPDX-License-Identifier: Apache-2.0
// Any text is read or refused with reasons, one line each; what is read is whole and within the
// caps.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/prometheus_config.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pairs(const struct prom_pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert(pairs[i].name && pairs[i].value);
}

static void check_http(const struct prom_http *http)
{
    assert(!(http->user && http->auth_type));
    assert(!(http->credentials && http->credentials_file));
    assert(!(http->credentials || http->credentials_file) || http->auth_type);
    check_pairs(http->headers, http->header_count);
    check_pairs(http->header_files, http->header_file_count);
}

static void check_job(const struct prom_job *j)
{
    assert(j->name && *j->name && j->metrics_path && j->scheme && j->fallback_protocol);
    assert(j->interval_ns && j->timeout_ns && j->timeout_ns <= j->interval_ns);
    check_pairs(j->params, j->param_count);
    check_http(&j->http);
    for (size_t i = 0; i < j->static_count; i++) {
        check_pairs(j->static_groups[i].labels, j->static_groups[i].label_count);
        for (size_t k = 0; k < j->static_groups[i].target_count; k++)
            assert(j->static_groups[i].targets[k]);
    }
    for (size_t i = 0; i < j->file_sd_count; i++)
        assert(j->file_sds[i].file_count && j->file_sds[i].files[0] && j->file_sds[i].refresh_ns);
    for (size_t i = 0; i < j->http_sd_count; i++) {
        assert(j->http_sds[i].url && j->http_sds[i].refresh_ns);
        check_http(&j->http_sds[i].http);
    }
    for (size_t i = 0; i < j->kube_sd_count; i++) {
        assert(j->kube_sds[i].role <= PROM_KUBE_INGRESS && j->kube_sds[i].line);
        check_http(&j->kube_sds[i].http);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 26);
    int r = prom_config_parse((struct sv){(const char *)data, size}, "f", &c, &errors);
    if (r < 0) {
        assert(r == -EINVAL && !c && errors.len && errors.data[errors.len - 1] == '\n');
        assert(sv_starts_with(buf_sv(&errors), SV("f:")));
    } else {
        assert(errors.len == 0 && c->refs == 1 && c->ignored && c->job_count <= LIMIT_PROM_JOBS);
        for (size_t i = 0; i < c->job_count; i++)
            check_job(&c->jobs[i]);
        check_pairs(c->external_labels, c->external_label_count);
        prom_config_unref(c);
    }
    buf_deinit(&errors);
    return 0;
}
