// SPDX-License-Identifier: Apache-2.0
// The yardstick for script/bench: libmicrohttpd alone, one epoll thread of its own, serving one
// file from memory, whatever is asked or sent.
//   bare_server FILE [CERTIFICATE KEY]
//   prints the port it listens on, on all addresses, and serves until its standard input ends.
#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECTIONS 4096u

static struct MHD_Response *response;

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **state)
{
    (void)user, (void)url, (void)method, (void)version, (void)data;
    if (*state && *data_bytes) {
        *data_bytes = 0; // taken
        return MHD_YES;
    }
    if (*state)
        return MHD_queue_response(connection, 200, response);
    *state = response; // an answer to the first call, before the request's body, would end the
                       // connection
    return MHD_YES;
}

static size_t read_whole(const char *path, char *out, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    size_t read = fread(out, 1, bytes, f);
    fclose(f);
    return read;
}

static struct MHD_Daemon *start(const char *certificate, const char *key)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | (certificate ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(flags, 0, NULL, NULL, answer, NULL, MHD_OPTION_CONNECTION_LIMIT,
                            CONNECTIONS, MHD_OPTION_ARRAY, certificate ? tls : tls + 2,
                            MHD_OPTION_END);
}

int main(int argc, char **argv)
{
    static char body[8u << 20], certificate[1u << 16], key[1u << 16];
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: bare_server FILE [CERTIFICATE KEY]\n");
        return 2;
    }
    size_t bytes = read_whole(argv[1], body, sizeof(body));
    bool tls = argc == 4;
    if (tls) {
        read_whole(argv[2], certificate, sizeof(certificate) - 1);
        read_whole(argv[3], key, sizeof(key) - 1);
    }
    response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    struct MHD_Daemon *daemon = start(tls ? certificate : NULL, tls ? key : NULL);
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
