// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "burn/supervise.h"

static int fail(const struct error *err)
{
    char text[1024];
    log_error(error_text(err, text, sizeof(text)));
    return BURN_STATUS_USAGE;
}

static int finish_stdout(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    log_error("cannot write to stdout", LOG_ERRNO(errno));
    return BURN_STATUS_USAGE;
}

static int print_help(void)
{
    struct buf text = BUF_INIT(1u << 20);
    option_print_help(&burn_option_table, &text);
    if (text.len > 0)
        fwrite(text.data, 1, text.len, stdout);
    buf_deinit(&text);
    return finish_stdout();
}

static int print_version(void)
{
    printf("podgpu-burn version %s\n", PODGPU_VERSION);
    return finish_stdout();
}

int main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct burn_options options = {0};
    process_set_up();
    int r = burn_options_parse(argc, argv, environ, &options, &err);
    if (r == OPTION_OUTCOME_HELP)
        return print_help();
    if (r == OPTION_OUTCOME_VERSION)
        return print_version();
    if (r < 0)
        return fail(&err);
    log_setup(LOG_FORMAT_TEXT, options.log_level);
    (void)process_raise_fd_limit(LIMIT_DESCRIPTORS);
    int status = burn_supervise(&options);
    burn_options_deinit(&options);
    return status;
}
