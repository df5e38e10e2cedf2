// SPDX-License-Identifier: Apache-2.0
#include "agent/aws/keys.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"

#define LEAD_NS (5 * 60 * NS_PER_S) // the services have new keys ready by then

void aws_erase_text(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void aws_erase_buf(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_deinit(b);
}

bool aws_is_plain(struct sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~')
            return false;
    return true;
}

static int check(const char *what, struct sv text, size_t most, struct error *err)
{
    if (text.len > most)
        return error_set(err, -EINVAL, "%s is longer than %zu bytes", what, most);
    if (!aws_is_plain(text))
        return error_set(err, -EINVAL, "%s has a space or a character that keys do not have", what);
    return 0;
}

int aws_key_set_init(struct aws_key_set *k, struct sv access_key, struct sv secret_key,
                     struct sv session_token, struct error *err)
{
    if (access_key.len == 0 || secret_key.len == 0)
        return error_set(err, -EINVAL, "no %s",
                         access_key.len == 0 ? "access key" : "secret access key");
    int r = check("the access key", access_key, LIMIT_AWS_KEY_BYTES, err);
    if (r == 0)
        r = check("the secret access key", secret_key, LIMIT_AWS_KEY_BYTES, err);
    if (r == 0)
        r = check("the session token", session_token, LIMIT_AWS_TOKEN_BYTES, err);
    if (r < 0)
        return r;
    struct aws_key_set set = {
        .access_key = sv_dup(access_key),
        .secret_key = sv_dup(secret_key),
        .session_token = session_token.len > 0 ? sv_dup(session_token) : NULL,
        .expires_ns = UINT64_MAX,
    };
    if (set.access_key && set.secret_key && (set.session_token || session_token.len == 0)) {
        *k = set;
        return 0;
    }
    aws_key_set_deinit(&set);
    return error_set(err, -ENOMEM, "out of memory");
}

void aws_key_set_deinit(struct aws_key_set *k)
{
    aws_erase_text(k->access_key);
    aws_erase_text(k->secret_key);
    aws_erase_text(k->session_token);
    *k = (struct aws_key_set){0};
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool aws_key_set_equals(const struct aws_key_set *a, const struct aws_key_set *b)
{
    return same(a->access_key, b->access_key) && same(a->secret_key, b->secret_key) &&
           same(a->session_token, b->session_token);
}

uint64_t aws_keys_refresh_ns(uint64_t life_ns, uint64_t chance)
{
    uint64_t lead_ns = life_ns / 3 < LEAD_NS ? life_ns / 3 : LEAD_NS;
    uint64_t spread_ns = life_ns / 6 < LEAD_NS ? life_ns / 6 : LEAD_NS;
    uint64_t after_ns = life_ns - lead_ns - chance % (spread_ns + 1);
    return after_ns > NS_PER_S ? after_ns : NS_PER_S;
}
