// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "exporter/app.h"

// Stopping waits for pool jobs, and a password check of high cost can take minutes.
#define STOP_SECONDS 1

static volatile sig_atomic_t stop_status;

static void stop_now(int signo)
{
    (void)signo;
    _exit(stop_status);
}

static void bound_the_stop(int status)
{
    stop_status = status;
    (void)signal(SIGALRM, stop_now);
    (void)alarm(STOP_SECONDS);
}

static int fail(const struct error *err)
{
    char text[1024];
    log_error(error_text(err, text, sizeof(text)));
    return 1;
}

// What was asked for on stdout either gets there or ends in an error.
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
    option_print_help(&exporter_option_table, &text);
    fwrite(text.data, 1, text.len, stdout);
    buf_deinit(&text);
    return finish_stdout();
}

static int print_version(void)
{
    printf("podgpu-exporter version %s\n", PODGPU_VERSION);
    return finish_stdout();
}

static int run(struct exporter_options *options)
{
    struct error err = ERROR_INIT;
    log_setup(options->log_format, options->log_level);
    (void)process_raise_fd_limit(LIMIT_DESCRIPTORS);
    log_info("starting podgpu-exporter", LOG_STR("version", PODGPU_VERSION));
    struct exporter_config *config = NULL;
    if (exporter_config_load(options, &config, &err) < 0)
        return fail(&err);
    struct app *app = NULL;
    int status = 1;
    if (app_new(options, config, &app, &err) < 0)
        fail(&err);
    else
        status = app_run(app);
    bound_the_stop(status);
    app_free(app);
    exporter_config_unref(config);
    return status;
}

int main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct exporter_options options = {0};
    process_set_up();
    (void)signal(SIGHUP, SIG_IGN); // before there is something to reload
    int r = exporter_options_parse(argc, argv, environ, &options, &err);
    int status = 0;
    if (r == OPTION_OUTCOME_HELP)
        status = print_help();
    else if (r == OPTION_OUTCOME_VERSION)
        status = print_version();
    else
        status = r < 0 ? fail(&err) : run(&options);
    exporter_options_deinit(&options);
    return status;
}
