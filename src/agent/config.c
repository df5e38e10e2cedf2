// SPDX-License-Identifier: Apache-2.0
#include "agent/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

static int load_prometheus(const struct agent_options *options, const struct cw_config *cw,
                           struct prom_config **out, struct buf *errors, struct buf *watched)
{
    const char *path = options->flags.prometheus_config;
    if (path[0] == '\0' && cw->prometheus_text)
        return prom_config_parse(sv_from(cw->prometheus_text), cw->prometheus_text_name, out,
                                 errors);
    if (path[0] == '\0')
        path = cw->prometheus_path;
    buf_add_str(watched, path);
    buf_add_char(watched, '\n');
    return prom_config_load_watched(path, out, errors, watched);
}

// The JSON is refused; what is wrong with the other file is told all the same.
static int check_prometheus_alone(const struct agent_options *options, const char *path,
                                  struct buf *errors)
{
    struct prom_config *prom = NULL;
    if (options->flags.prometheus_config[0] != '\0')
        path = options->flags.prometheus_config;
    int r = path[0] != '\0' ? prom_config_load(path, &prom, errors) : 0;
    prom_config_unref(prom);
    return r == -ENOMEM ? r : -EINVAL;
}

static int load_json(const struct agent_options *options, const struct cw_sources *from,
                     struct cw_config **out, struct buf *errors, struct buf *warnings)
{
    struct buf path = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct cw_sources with_path = *from;
    with_path.prometheus_path = &path;
    int r = cw_config_load(&with_path, out, errors, warnings);
    if (r == -EINVAL)
        r = check_prometheus_alone(options, buf_cstr(&path), errors);
    buf_deinit(&path);
    return r;
}

static int check_section(const struct cw_config *cw, const struct agent_options *options,
                         struct buf *errors)
{
    if (cw->has_prometheus || options->flags.prometheus_config[0] != '\0')
        return 0;
    buf_add_str(errors, "logs.metrics_collected.prometheus: expected this section in the "
                        "configuration, or --prometheus-config\n");
    return -EINVAL;
}

static int check_scope(const struct cw_config *cw, const struct agent_options *options,
                       struct buf *errors)
{
    if (!cw->scope_node || options->node_name[0] != '\0')
        return 0;
    buf_add_str(errors, "podgpu.scope is \"node\", and the node is not known: set --node-name, "
                        "NODE_NAME or K8S_NODE_NAME\n");
    return -EINVAL;
}

// All of them are asked, so that a person hears of everything at once.
static int first_of(int a, int b)
{
    return a < 0 ? a : b;
}

static int set_outputs(struct agent_config *c, const struct cw_output *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *where = from[i].where ? sv_dup(sv_from(from[i].where)) : NULL;
        if (from[i].where && !where)
            return -ENOMEM;
        c->outputs[i] = (struct cw_output){from[i].kind, where};
        c->output_count++;
    }
    return 0;
}

int agent_config_load(const struct agent_options *options, char *const *environment,
                      struct agent_config *out, struct buf *errors, struct buf *warnings,
                      struct buf *watched)
{
    struct agent_config c = {0};
    const struct cw_sources from = {
        .path = options->flags.config[0] != '\0' ? options->flags.config : NULL,
        .environment = environment,
        .compat = options->compat,
    };
    int r = load_json(options, &from, &c.cw, errors, warnings);
    if (r < 0) {
        cw_sources_add_watched(&from, watched); // it may be mended there
        return r;
    }
    cw_config_add_watched(c.cw, watched);
    r = check_section(c.cw, options, errors);
    if (r == 0)
        r = load_prometheus(options, c.cw, &c.prom, errors, watched);
    r = first_of(r, check_scope(c.cw, options, errors));
    int copied = options->output_count ? set_outputs(&c, options->outputs, options->output_count)
                                       : set_outputs(&c, c.cw->outputs, c.cw->output_count);
    r = first_of(r, copied);
    if (r < 0) {
        agent_config_deinit(&c);
        return r;
    }
    *out = c;
    return 0;
}

void agent_config_deinit(struct agent_config *c)
{
    cw_config_unref(c->cw);
    prom_config_unref(c->prom);
    for (size_t i = 0; i < c->output_count; i++)
        free(c->outputs[i].where);
    *c = (struct agent_config){0};
}
