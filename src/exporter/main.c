// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "exporter/app.h"
#include "exporter/doctor.h"

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
    if (r < 0)
        return fail(&err);
    if (r > 0) {
        option_print(&exporter_option_table, r);
        return process_finish_stdout() ? 0 : 1;
    }
    int status = options.flags.doctor ? doctor_run(&options) : run(&options);
    exporter_options_deinit(&options);
    return status;
}
