// SPDX-License-Identifier: Apache-2.0
// simnode SCENARIO.yaml --out FILE [--rate R]: makes a simulated node.
// simnode FILE VERB [WORD ...]: looks at it or changes it while it lives (see sim/README.md).
#include "session.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"

static const char usage[] =
    "usage: simnode SCENARIO.yaml --out FILE [--rate R]\n"
    "       simnode FILE VERB [WORD ...]\n"
    "verbs: set get fault crash xid counts pods process mig reset clock holders\n";

static int create(const char *scenario, const char *out, double rate)
{
    struct error err = ERROR_INIT;
    char text[1024];
    if (sim_session_create(scenario, out, rate, &err) == 0)
        return EXIT_SUCCESS;
    (void)fprintf(stderr, "simnode: %s\n", error_text(&err, text, sizeof(text)));
    return EXIT_FAILURE;
}

// An exit status that scripts can tell apart: 2 for a GPU in use.
static int run(const char *path, int argc, char **argv)
{
    struct sim_session *s = sim_session_open(path);
    if (!s) {
        (void)fprintf(stderr, "simnode: %s: not a simulated node: %s\n", path, strerror(errno));
        return EXIT_FAILURE;
    }
    struct buf line = BUF_INIT(64u << 10);
    for (int i = 0; i < argc; i++) {
        buf_add_str(&line, i > 0 ? " " : "");
        buf_add_str(&line, argv[i]);
    }
    static char answer[4u << 20];
    int rc = sim_session_run(s, buf_cstr(&line), -1, answer, sizeof(answer), NULL);
    (void)fprintf(rc < 0 ? stderr : stdout, "%s%s%s", rc < 0 ? "simnode: " : "", answer,
                  rc < 0 ? "\n" : "");
    buf_deinit(&line);
    sim_session_close(s);
    return rc == -EBUSY ? 2 : rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"out", required_argument, NULL, 'o'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        (void)fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (argc >= 3 && argv[2][0] != '-')
        return run(argv[1], argc - 2, argv + 2);
    const char *out = NULL;
    double rate = 1;
    bool good = argc >= 4;
    int c;
    for (optind = 2; good && (c = getopt_long(argc, argv, "o:r:", options, NULL)) != -1;) {
        if (c == 'o')
            out = optarg;
        else
            good = c == 'r' && num_parse_double(sv_from(optarg), &rate) == 0;
    }
    if (good && out && optind == argc)
        return create(argv[1], out, rate);
    (void)fputs(usage, stderr);
    return EXIT_FAILURE;
}
