// SPDX-License-Identifier: Apache-2.0
// The first byte chooses a grammar, the rest is its text.
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/http_syntax.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_accept_encoding(struct sv text)
{
    struct accept_encoding a = ACCEPT_ENCODING_INIT;
    accept_encoding_read(&a, text);
    assert(a.gzip >= -1 && a.gzip <= 1000 && a.identity >= -1 && a.identity <= 1000 &&
           a.any >= -1 && a.any <= 1000);
    (void)accept_encoding_wants_gzip(&a);
}

static void try_basic(struct sv text)
{
    char out[64];
    struct sv user, password;
    if (http_basic_decode(text, out, sizeof(out), &user, &password) < 0)
        return;
    assert(user.ptr == out && user.len + 1 + password.len <= sizeof(out) &&
           password.ptr == out + user.len + 1);
    assert(!memchr(user.ptr, ':', user.len));
}

static void try_unescape(struct sv text)
{
    char *copy = sv_dup(text);
    assert(copy);
    size_t before = strlen(copy);
    size_t after = http_unescape(copy);
    assert(after <= before && strlen(copy) == after);
    free(copy);
}

static void try_address(struct sv text)
{
    char *copy = sv_dup(text);
    struct http_address a;
    struct error err = ERROR_INIT;
    assert(copy);
    if (http_address_parse(copy, &a, &err) == 0)
        assert(strlen(a.host) < sizeof(a.host) && (!a.is_unix || a.host[0] == '/'));
    else
        assert(err.text[0]);
    free(copy);
}

static void try_path(struct sv text)
{
    char out[512], again[3 * sizeof(out) + 3];
    if (http_path_clean(text, out, sizeof(out)) < 0)
        return;
    assert(out[0] == '/' && out[1] != '/' && strlen(out) < sizeof(out));
    assert(http_path_is_clean(sv_from(out)));
    for (const char *c = out; *c; c++)
        assert(*c > ' ' && *c < 0x7f && *c != '\\');
    assert(http_path_clean(sv_from(out), again, sizeof(again)) == 0);
    assert(strchr(out, '%') || strcmp(out, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct sv text = {(const char *)data + 1, size - 1};
    switch (data[0]) {
    case 'e':
        try_accept_encoding(text);
        break;
    case 'b':
        try_basic(text);
        break;
    case 'u':
        try_unescape(text);
        break;
    case 'a':
        try_address(text);
        break;
    case 'p':
        try_path(text);
        break;
    case 'n':
        (void)http_name_is_token(text);
        break;
    }
    return 0;
}
