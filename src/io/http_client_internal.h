// SPDX-License-Identifier: Apache-2.0
// What the parts of the HTTP client share.
#pragma once

#include "io/http_client.h"
#include "io/http_client_curl.h"

struct http_client {
    struct loop *loop;
    const struct curl_api *curl;
    CURLM *multi;
    CURLSH *share; // TLS sessions; names and connections are the multi handle's
    struct loop_timer *timer;
    struct http_watch *watches;
    struct http_call *running, *finished, *delivered; // each call is in one of them
    struct http_handle *handles;
    size_t call_count, handle_count;
    bool inside;        // libcurl is on the stack
    bool has_abandoned; // calls freed meanwhile
    bool has_starved;   // calls without a watch
    bool delivering;    // an owner is being told
    bool gone;          // freed meanwhile: only the memory is left
};

struct http_handle {
    struct http_client *client; // NULL: freed before
    struct http_call *call;     // the last one, as long as it has an easy handle; NULL: none
    struct http_handle *previous, *next;
};

struct http_call {
    struct http_client *client; // NULL: freed before
    struct http_handle *handle; // NULL: none, and the connection is not kept
    CURL *easy;                 // NULL: done with
    struct http_call **list, *previous, *next;
    int (*data)(void *user, struct sv piece);
    void (*done)(void *user, const struct http_client_response *response);
    void *user;
    bool delivering, abandoned, is_signed, is_starved;

    // Read by libcurl while the request runs; secrets, erased with the call.
    struct curl_slist *headers, *connect_to;
    char *body_out, *pem[3];
    size_t body_out_bytes;

    CURLcode code;
    struct buf body;
    uint64_t deadline_ms;
    size_t received, header_bytes;
    int write_error; // why our callback ended the request
    char content_type[256];
    char text[CURL_ERROR_SIZE];
};

// Puts the request into call->easy. 0, -EINVAL with *err, -ENOMEM.
int must_use http_client_setup(struct http_call *call, const struct http_client_request *request,
                               struct error *err);
void http_client_setup_deinit(struct http_call *call, const struct curl_api *curl);
// The answer of a finished call, as far as libcurl has it.
void http_client_answer(struct http_call *call, struct http_client_response *out);
