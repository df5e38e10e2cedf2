// SPDX-License-Identifier: Apache-2.0
// The yardstick for script/bench: libmicrohttpd alone, one epoll thread of its own, serving one
// file from memory.
//   bare_server FILE  prints the port it listens on, and serves until its standard input ends.
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>

static struct MHD_Response *response;

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **state)
{
    (void)user, (void)url, (void)method, (void)version, (void)data, (void)data_bytes;
    if (*state)
        return MHD_queue_response(connection, 200, response);
    *state = response; // an answer to the first call, before the request's body, would end the
                       // connection
    return MHD_YES;
}

int main(int argc, char **argv)
{
    static char body[8u << 20];
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!f) {
        fprintf(stderr, "usage: bare_server FILE\n");
        return 2;
    }
    size_t bytes = fread(body, 1, sizeof(body), f);
    fclose(f);
    response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL,
                                                 answer, NULL, MHD_OPTION_END);
    if (!daemon)
        return 1;
    printf("%u\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}
