// SPDX-License-Identifier: Apache-2.0
// Where we are: region, credentials, cluster, one after the other, and none of them looked for when
// the configuration gives it or the output has no need of it. An agent that writes to a file on a
// laptop asks nobody.
#include <stdio.h>
#include <string.h>

#include "agent/app_internal.h"
#include "base/log.h"

const char *agent_cluster(const struct agent *a)
{
    return a->cluster[0] != '\0' ? a->cluster : NULL;
}

static const char *cluster_given(const struct agent *a)
{
    const struct cw_config *cw = a->config.cw;
    if (cw->cluster_name)
        return cw->cluster_name;
    if (cw->kubernetes_cluster_name && !cw->compat) // the agent asks it for the log group only
        return cw->kubernetes_cluster_name;
    return aws_env_get(&a->env, "K8S_CLUSTER_NAME");
}

// Without its name a container's log group has none, and series of several clusters would be mixed.
// On a host both may be without.
static bool needs_cluster(const struct agent *a)
{
    return a->config.cw->in_container || !a->config.cw->log_group;
}

static void with_cluster(struct agent *a, const char *name, const struct error *err)
{
    sv_copy(a->cluster, sizeof(a->cluster), sv_from(name));
    if (a->cluster[0] == '\0' && needs_cluster(a)) {
        agent_fail(a, "the name of the cluster is not known", err ? err->text : "");
        return;
    }
    if (a->cluster[0] == '\0')
        log_warn("the name of the cluster is not known, events are without ClusterName",
                 LOG_STR("reason", err ? err->text : ""));
    agent_begin(a);
}

static void on_cluster(void *user, const char *text, const struct error *err)
{
    struct agent *a = user;
    struct aws_lookup *done = TAKE_PTR(a->lookup); // text and err are its
    with_cluster(a, text, err);
    aws_lookup_free(done);
}

static void find_cluster(struct agent *a)
{
    const char *given = cluster_given(a);
    if (given) {
        with_cluster(a, given, NULL);
        return;
    }
    int r = aws_cluster_find(&a->env, NULL, a->region, a->credentials, on_cluster, a, &a->lookup);
    if (r < 0)
        agent_fail(a, "start failed", strerror(-r));
}

static int start_credentials(struct agent *a)
{
    return aws_credentials_new(&a->env, a->config.cw->role_arn, a->region[0] ? a->region : NULL,
                               &a->credentials);
}

static void on_region(void *user, const char *text, const struct error *err)
{
    struct agent *a = user;
    struct aws_lookup *done = TAKE_PTR(a->lookup); // text and err are its
    int r = 0;
    sv_copy(a->region, sizeof(a->region), sv_from(text));
    if (a->region[0] == '\0' && agent_sends_to_cloudwatch(a))
        agent_fail(a, "the AWS region is not known", err ? err->text : "");
    else
        r = start_credentials(a);
    aws_lookup_free(done);
    if (r < 0)
        agent_fail(a, "start failed", strerror(-r));
    else if (!a->is_ending)
        find_cluster(a);
}

void agent_find_place(struct agent *a)
{
    if (!agent_sends_to_cloudwatch(a) && (cluster_given(a) || !needs_cluster(a))) {
        const char *given = cluster_given(a);
        with_cluster(a, given ? given : "", NULL);
        return;
    }
    int r = aws_region_find(&a->env, a->config.cw->region, on_region, a, &a->lookup);
    if (r < 0)
        agent_fail(a, "start failed", strerror(-r));
}

static bool ways_differ(const struct agent *a, const struct cw_config *before)
{
    const struct cw_config *cw = a->config.cw;
    return (cw->region && agent_texts_differ(cw->region, a->region)) ||
           agent_texts_differ(cw->role_arn, before->role_arn) ||
           agent_texts_differ(cw->endpoint_override, before->endpoint_override) ||
           cw->use_dualstack != before->use_dualstack ||
           cw->retention_days != before->retention_days;
}

// What was found before stays where the configuration says nothing. A way to CloudWatch that is the
// same stays too: another one would cancel the requests under way, whose batches would be sent
// twice, and forget that the service asked for patience.
int agent_set_place(struct agent *a, const struct cw_config *before_cw, struct error *err)
{
    const struct cw_config *cw = a->config.cw;
    const char *cluster = cluster_given(a);
    if (cluster)
        sv_copy(a->cluster, sizeof(a->cluster), sv_from(cluster));
    if (!agent_sends_to_cloudwatch(a) || (!a->place_failed && !ways_differ(a, before_cw)))
        return 0;
    a->place_failed = true; // until it is taken in
    if (cw->region)
        sv_copy(a->region, sizeof(a->region), sv_from(cw->region));
    struct aws_credentials *before = a->credentials;
    int r = start_credentials(a);
    if (r < 0) {
        a->credentials = before;
        return r;
    }
    r = agent_open_logs(a, err);
    if (r < 0) {
        aws_credentials_free(a->credentials);
        a->credentials = before;
        return r;
    }
    aws_credentials_free(before);
    a->place_failed = false;
    return 0;
}
