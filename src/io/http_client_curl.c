// SPDX-License-Identifier: Apache-2.0
#include "io/http_client_curl.h"

#include <errno.h>
#include <stdbool.h>

#include "base/dl.h"

// Debian's OpenSSL flavour; the soname has been this since 2006.
#define CURL_SONAME "libcurl.so.4"
// CURLOPT_QUICK_EXIT, without which a cancelled look-up of a name blocks the loop, came with 7.87.
#define CURL_LEAST_VERSION 0x075700

static const struct dl_symbol symbols[] = {
#define CURL_ROW(name) {offsetof(struct curl_api, name), {"curl_" #name}, (size_t)-1},
    CURL_FUNCTIONS(CURL_ROW)
#undef CURL_ROW
};

static int open_library(struct curl_api *api, struct error *err)
{
    void *handle;
    int r = dl_open(CURL_SONAME, NULL, &handle, NULL);
    if (r == -ENOENT)
        return error_set(err, r, "HTTP requests need libcurl: '%s' not found (Debian: libcurl4)",
                         CURL_SONAME);
    if (r < 0)
        return dl_open(CURL_SONAME, NULL, &handle, err);
    unsigned found = dl_resolve(handle, symbols, ARRAY_SIZE(symbols), api);
    if (found == ARRAY_SIZE(symbols) &&
        api->version_info(CURLVERSION_NOW)->version_num >= CURL_LEAST_VERSION)
        return 0;
    dl_close(handle);
    return error_set(err, -ELIBBAD, "'%s' is too old: 7.87 or newer is needed", CURL_SONAME);
}

int http_client_curl_load(const struct curl_api **out, struct error *err)
{
    static struct curl_api api;
    static bool loaded;
    if (!loaded) {
        int r = open_library(&api, err);
        if (r < 0)
            return r;
        if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
            return error_set(err, -ENOMEM, "libcurl can't be initialised");
        loaded = true;
    }
    *out = &api;
    return 0;
}
