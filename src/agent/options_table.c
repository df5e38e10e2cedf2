// SPDX-License-Identifier: Apache-2.0
#include "agent/options.h"

#define AT(member) offsetof(struct agent_flags, member)
#define UNMARKED ((size_t)-1)

#define TEXT(flag, variable, member, initial, theme, words)                                        \
    {                                                                                              \
        flag, NULL, variable, OPTION_STRING, AT(member), UNMARKED, initial, 0, 0, theme, words,    \
            false                                                                                  \
    }
#define SWITCH(flag, variable, member, theme, words)                                               \
    {                                                                                              \
        flag, NULL, variable, OPTION_BOOL, AT(member), UNMARKED, NULL, 0, 0, theme, words, false   \
    }

#define CONFIGURATION "Configuration"
#define TASK "What to do"
#define HTTP "HTTP"
#define LOGGING "Log"

static const struct option_row rows[] = {
    TEXT("config", "PODGPU_AGENT_CONFIG", config, NULL, CONFIGURATION,
         "The CloudWatch agent's JSON: a file, or a directory whose files are merged. Default: "
         "where that agent looks (/etc/cwagentconfig, then "
         "/opt/aws/amazon-cloudwatch-agent/etc, then $CW_CONFIG_CONTENT)."),
    TEXT("prometheus-config", "PODGPU_AGENT_PROMETHEUS_CONFIG", prometheus_config, NULL,
         CONFIGURATION, "prometheus.yaml, instead of the one that the JSON names."),
    TEXT("compat", "PODGPU_AGENT_COMPAT", compat, NULL, CONFIGURATION,
         "cwagent: the names and data of the CloudWatch agent with their quirks "
         "(docs/agent-configuration.md)."),
    TEXT("node-name", "NODE_NAME", node_name, NULL, CONFIGURATION,
         "This node, for podgpu.scope = node. $K8S_NODE_NAME is looked at, too."),
    {"output", NULL, "PODGPU_AGENT_OUTPUT", OPTION_LIST, AT(output), UNMARKED, NULL, 0, 0, TASK,
     "Where events go: cloudwatch (the default), stdout, file:PATH, tcp:HOST:PORT. Several with "
     "commas between.",
     false},
    SWITCH("once", "PODGPU_AGENT_ONCE", once, TASK,
           "Scrape every target once, ship, end. Status 1 when a target was down or an event could "
           "not be shipped."),
    SWITCH("check", "PODGPU_AGENT_CHECK", check, TASK,
           "Read the configuration, say everything that is wrong with it, end."),
    SWITCH("lint", "PODGPU_AGENT_LINT", lint, TASK,
           "As --check, and say why a job or a declaration can match nothing. Status 1 when there "
           "is something to say."),
    SWITCH("estimate", "PODGPU_AGENT_ESTIMATE", estimate, TASK,
           "Scrape every target twice, say how many custom metrics and how much log the "
           "configuration makes, end. Nothing is sent."),
    TEXT("listen", "PODGPU_AGENT_LISTEN", listen, ":9401", HTTP,
         "Where /metrics, /targets, /livez and /readyz are served: host:port, :port or unix:/path; "
         "empty: nowhere."),
    TEXT("web-config-file", "PODGPU_AGENT_WEB_CONFIG_FILE", web_config_file, NULL, HTTP,
         "TLS and basic auth for that address, as in exporter-toolkit's web configuration."),
    TEXT("log-format", "PODGPU_AGENT_LOG_FORMAT", log_format, "text", LOGGING, "text or json."),
    SWITCH("debug", "PODGPU_AGENT_DEBUG", debug, LOGGING, "Log details, too."),
};

const struct option_table agent_option_table = {
    .program = "podgpu-agent",
    .summary = "Scrapes Prometheus endpoints and ships their metrics to Amazon CloudWatch.",
    .rows = rows,
    .count = ARRAY_SIZE(rows),
};
