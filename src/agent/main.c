// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/app.h"
#include "agent/app_internal.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"

static int fail(const struct error *err)
{
    char text[1024];
    log_error(error_text(err, text, sizeof(text)));
    return 1;
}

static int finish_stdout(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    log_error("cannot write to stdout", LOG_ERRNO(errno));
    return 1;
}

static int print_help(void)
{
    struct buf text = BUF_INIT(1u << 20);
    option_print_help(&agent_option_table, &text);
    fwrite(text.data, 1, text.len, stdout);
    buf_deinit(&text);
    return finish_stdout();
}

static int print_version(void)
{
    printf("podgpu-agent version %s\n", PODGPU_VERSION);
    return finish_stdout();
}

static int print_check(const struct buf *errors, const struct buf *warnings, int r)
{
    fwrite(errors->data, 1, errors->len, stdout);
    fwrite(warnings->data, 1, warnings->len, stdout);
    if (r == 0)
        printf("the configuration is good\n");
    return finish_stdout() == 0 && r == 0 ? 0 : 1;
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
    if (options->task == AGENT_CHECK) {
        status = print_check(&errors, &warnings, r);
    } else {
        agent_log_lines(true, &errors);
        agent_log_lines(false, &warnings);
        if (r == -ENOMEM)
            log_error("out of memory");
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
    if (r == OPTION_OUTCOME_HELP)
        return print_help();
    if (r == OPTION_OUTCOME_VERSION)
        return print_version();
    if (r < 0)
        return fail(&err);
    log_setup(options.log_format, options.log_level);
    (void)process_raise_fd_limit(LIMIT_DESCRIPTORS);
    if (options.task == AGENT_RUN)
        log_info("starting podgpu-agent", LOG_STR("version", PODGPU_VERSION));
    int status = with_config(&options);
    agent_options_deinit(&options);
    return status;
}
