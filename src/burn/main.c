// SPDX-License-Identifier: Apache-2.0
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

int main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct burn_options options = {0};
    process_set_up();
    int r = burn_options_parse(argc, argv, environ, &options, &err);
    if (r < 0)
        return fail(&err);
    if (r > 0) {
        option_print(&burn_option_table, r);
        return process_finish_stdout() ? 0 : BURN_STATUS_USAGE;
    }
    log_setup(LOG_FORMAT_TEXT, options.log_level);
    (void)process_raise_fd_limit(LIMIT_DESCRIPTORS);
    int status = burn_supervise(&options);
    burn_options_deinit(&options);
    return status;
}
