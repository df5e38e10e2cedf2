// SPDX-License-Identifier: Apache-2.0
// libcurl's functions as a table filled at run time. The types are those of its header, so a call
// through the table is checked as a plain one. For io/http_client alone.
#pragma once

// The header's checking macros stand in for names that the table does not use.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "base/error.h"

#define CURL_FUNCTIONS(X)                                                                          \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(getdate)                                                                                     \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_header)                                                                                 \
    X(multi_init)                                                                                  \
    X(multi_cleanup)                                                                               \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_socket_action)                                                                         \
    X(multi_info_read)                                                                             \
    X(multi_assign)                                                                                \
    X(share_init)                                                                                  \
    X(share_setopt)                                                                                \
    X(share_cleanup)                                                                               \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(url)                                                                                         \
    X(url_set)                                                                                     \
    X(url_get)                                                                                     \
    X(url_cleanup)                                                                                 \
    X(free)

struct curl_api {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};

// The table, loaded and initialised once a process and kept: libcurl and OpenSSL leave handlers
// behind that a library taken away would miss. 0; -ENOENT (not installed), -ELIBBAD (not loadable
// or older than 7.87), -ENOMEM. Loop's thread only.
int must_use http_client_curl_load(const struct curl_api **out, struct error *err);
