// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/app.h"
#include "agent/app_internal.h"
#include "agent/lint.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "codec/yaml.h"

static int fail(const struct error *err)
{
    char text[1024];
    log_error(error_text(err, text, sizeof(text)));
    return 1;
}

static void print_text(const struct buf *text)
{
    if (text->len > 0) // an empty one has no data
        fwrite(text->data, 1, text->len, stdout);
}

static int print_check(const struct buf *errors, const struct buf *warnings, int r)
{
    print_text(errors);
    print_text(warnings);
    if (r == 0)
        printf("the configuration is good\n");
    return process_finish_stdout() && r == 0 ? 0 : 1;
}

// The text of prometheus.yaml once more, for the positions of its rules.
static int parse_yaml(const struct agent_config *config, struct buf *text,
                      struct yaml_document **out, struct error *err)
{
    const struct cw_config *cw = config->cw;
    bool is_text =
        cw->prometheus_text_name && strcmp(config->prom->file, cw->prometheus_text_name) == 0;
    int r = 0;
    if (is_text)
        buf_add_str(text, cw->prometheus_text);
    else
        r = file_read(config->prom->file, text, err);
    return r < 0 ? r : yaml_parse(buf_sv(text), config->prom->file, out, err);
}

static int print_lint(const struct agent_config *config, const struct buf *warnings)
{
    struct error err = ERROR_INIT;
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct buf found = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct yaml_document *yaml = NULL;
    int r = parse_yaml(config, &text, &yaml, &err);
    struct lint l = {config->prom, config->cw, r == 0 ? yaml_root(yaml) : NULL, &found, 0};
    if (r == 0)
        r = lint_run(&l);
    if (r < 0)
        log_error("configuration could not be looked at", LOG_STR("error", err.text), LOG_ERRNO(r));
    print_text(warnings);
    print_text(&found);
    if (r == 0 && l.findings == 0)
        printf("nothing to say\n");
    yaml_document_free(yaml);
    buf_deinit(&text);
    buf_deinit(&found);
    return process_finish_stdout() && r == 0 && l.findings == 0 ? 0 : 1;
}

static void log_ignored(const struct agent_config *config)
{
    if (config->cw->ignored[0] != '\0')
        log_warn("sections of the configuration that podgpu-agent has no use for",
                 LOG_STR("sections", config->cw->ignored));
    if (config->prom->ignored[0] != '\0')
        log_warn("keys of prometheus.yaml that have no effect",
                 LOG_STR("keys", config->prom->ignored));
}

static int run(const struct agent_options *options, struct agent_config *config,
               const struct buf *watched)
{
    struct error err = ERROR_INIT;
    struct agent *a = NULL;
    log_ignored(config);
    if (agent_new(options, environ, config, &a, &err) < 0)
        return fail(&err);
    if (agent_watch_files(a, watched) < 0)
        log_warn("configuration files cannot be watched");
    int status = agent_run(a);
    agent_free(a);
    return status;
}

static int with_config(const struct agent_options *options)
{
    struct buf errors = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct buf warnings = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct buf watched = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct agent_config config = {0};
    int status = 1;
    int r = agent_config_load(options, environ, &config, &errors, &warnings, &watched);
    if (options->task == AGENT_CHECK || (options->task == AGENT_LINT && r < 0)) {
        status = print_check(&errors, &warnings, r);
    } else if (options->task == AGENT_LINT) {
        status = print_lint(&config, &warnings);
    } else {
        agent_log_lines(true, &errors);
        agent_log_lines(false, &warnings);
        if (r == -ENOMEM)
            log_error("out of memory");
        if (r == 0 && config.cw->debug)
            log_setup(options->log_format, LOG_LEVEL_DEBUG);
        if (r == 0)
            status = run(options, &config, &watched);
    }
    agent_config_deinit(&config);
    buf_deinit(&errors);
    buf_deinit(&warnings);
    buf_deinit(&watched);
    return status;
}

int main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct agent_options options = {0};
    process_set_up();
    (void)signal(SIGHUP, SIG_IGN); // before there is something to reload
    int r = agent_options_parse(argc, argv, environ, &options, &err);
    if (r < 0)
        return fail(&err);
    if (r > 0) {
        option_print(&agent_option_table, r);
        return process_finish_stdout() ? 0 : 1;
    }
    log_setup(options.log_format, options.log_level);
    (void)process_raise_fd_limit(LIMIT_AGENT_DESCRIPTORS);
    if (options.task == AGENT_RUN)
        log_info("starting podgpu-agent", LOG_STR("version", PODGPU_VERSION));
    int status = with_config(&options);
    agent_options_deinit(&options);
    return status;
}
