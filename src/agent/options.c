// SPDX-License-Identifier: Apache-2.0
#include "agent/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *env_get(char **environment, const char *name)
{
    size_t len = strlen(name);
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return *environment + len + 1;
    }
    return "";
}

static int read_task(struct agent_options *o, struct error *err)
{
    const struct agent_flags *f = &o->flags;
    if (f->once + f->check + f->lint + f->estimate > 1)
        return error_set(err, -EINVAL,
                         "--once, --check, --lint and --estimate: expected one of them at most");
    o->task = f->check      ? AGENT_CHECK
              : f->lint     ? AGENT_LINT
              : f->estimate ? AGENT_ESTIMATE
                            : AGENT_RUN;
    return 0;
}

static int read_words(struct agent_options *o, struct error *err)
{
    const struct agent_flags *f = &o->flags;
    o->compat = strcmp(f->compat, "cwagent") == 0;
    if (f->compat[0] != '\0' && !o->compat)
        return error_set(err, -EINVAL,
                         "--compat (PODGPU_AGENT_COMPAT): expected cwagent, found '%.128s'",
                         f->compat);
    bool is_json = strcmp(f->log_format, "json") == 0;
    if (!is_json && strcmp(f->log_format, "text") != 0)
        return error_set(
            err, -EINVAL,
            "--log-format (PODGPU_AGENT_LOG_FORMAT): expected text or json, found '%.128s'",
            f->log_format);
    o->log_format = is_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    o->log_level = f->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    return 0;
}

static int read_outputs(struct agent_options *o, struct error *err)
{
    const struct option_list *list = &o->flags.output;
    struct error inner = ERROR_INIT;
    if (list->count > CW_OUTPUTS_MAX)
        return error_set(err, -EINVAL,
                         "--output (PODGPU_AGENT_OUTPUT): expected %d at most, found %zu",
                         CW_OUTPUTS_MAX, list->count);
    for (size_t i = 0; i < list->count; i++) {
        int r = cw_output_parse(sv_from(list->items[i]), &o->outputs[i], &inner);
        if (r < 0)
            return error_set(err, r, "--output (PODGPU_AGENT_OUTPUT): %s",
                             inner.text[0] ? inner.text : strerror(-r));
        o->output_count++;
    }
    return 0;
}

int agent_options_parse(int argc, char **argv, char **environment, struct agent_options *out,
                        struct error *err)
{
    struct agent_options o = {0};
    int positional = argc;
    int r = option_parse(&agent_option_table, argc, argv, environment, &o.flags, &positional, err);
    if (r != 0)
        return r;
    if (positional < argc)
        r = error_set(err, -EINVAL, "'%.128s': expected a flag; see --help", argv[positional]);
    if (r == 0)
        r = read_task(&o, err);
    if (r == 0)
        r = read_words(&o, err);
    if (r == 0)
        r = read_outputs(&o, err);
    if (r < 0) {
        agent_options_deinit(&o);
        return r;
    }
    o.node_name =
        o.flags.node_name[0] != '\0' ? o.flags.node_name : env_get(environment, "K8S_NODE_NAME");
    *out = o;
    return 0;
}

void agent_options_deinit(struct agent_options *o)
{
    option_deinit(&agent_option_table, &o->flags);
    for (size_t i = 0; i < o->output_count; i++)
        free(o->outputs[i].where);
    o->output_count = 0;
}
