// SPDX-License-Identifier: Apache-2.0
// One walk along the providers at a time (fetch.h); between walks a timer waits: for the time to
// refresh, or for another try. Another one takes the keys away when they expire. Good keys stay
// while a refresh fails.
//
// Invariants: `keys` is empty or unexpired but for a turn of the loop; while `is_fetching`, `fetch`
// runs and `next` does not wait.
#include "agent/aws/credentials.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/aws/fetch.h"
#include "base/clock.h"
#include "base/log.h"

#define REREAD_NS (10 * 60 * NS_PER_S) // keys without expiry that stand in a file
#define RETRY_LEAST_NS (1 * NS_PER_S)
#define RETRY_MOST_NS (60 * NS_PER_S)
#define EXPIRE_LEAST_NS (10 * NS_PER_S) // between two fetches that others ask for

struct aws_credentials {
    const struct aws_env *env;
    char *role_arn, *region; // NULL: none
    void (*changed)(void *user);
    void *user;
    struct aws_key_set keys; // access_key NULL: none
    char provider[64];
    int failure; // of the last walk, told while there are no keys
    struct error err;
    unsigned failures;            // walks in a row
    uint64_t fetched_ns, next_ns; // when the last walk began; when the next one is due
    bool is_fetching;
    struct aws_fetch fetch;
    struct loop_timer *next, *expiry;
};

static void fetch_now(struct aws_credentials *c);

static uint64_t now_ns(const struct aws_credentials *c)
{
    return loop_now_ns(c->env->loop);
}

static void set_next(struct aws_credentials *c, uint64_t delay_ns)
{
    c->next_ns = now_ns(c) + delay_ns;
    loop_timer_set(c->next, delay_ns, 0);
}

static void wait_after_success(struct aws_credentials *c)
{
    const struct aws_key_set *k = &c->keys;
    loop_timer_stop(c->expiry);
    c->next_ns = UINT64_MAX;
    if (k->expires_ns != UINT64_MAX) {
        uint64_t life_ns = k->expires_ns - now_ns(c);
        set_next(c, aws_keys_refresh_ns(life_ns, clock_jitter_ns(UINT64_MAX)));
        loop_timer_set(c->expiry, life_ns, 0);
    } else if (strcmp(c->provider, "environment") != 0) {
        set_next(c, REREAD_NS + clock_jitter_ns(REREAD_NS / 10));
    }
}

static void take_success(struct aws_credentials *c)
{
    bool is_other = !aws_key_set_equals(&c->keys, &c->fetch.keys);
    if (strcmp(c->provider, c->fetch.provider) != 0)
        log_info("AWS credentials found", LOG_STR("provider", c->fetch.provider));
    aws_key_set_deinit(&c->keys);
    c->keys = c->fetch.keys;
    c->fetch.keys = (struct aws_key_set){0};
    memcpy(c->provider, c->fetch.provider, sizeof(c->provider));
    c->failures = 0;
    c->failure = 0;
    aws_fetch_deinit(&c->fetch);
    wait_after_success(c);
    if (is_other && c->changed)
        c->changed(c->user);
}

static void take_failure(struct aws_credentials *c, int r)
{
    bool is_other = !c->keys.access_key && c->failure != r;
    c->failure = r;
    c->err = c->fetch.err;
    c->err.code = r;
    aws_fetch_deinit(&c->fetch);
    uint64_t wait_ns = clock_backoff_ns(c->failures++, RETRY_LEAST_NS, RETRY_MOST_NS);
    set_next(c, wait_ns + clock_jitter_ns(wait_ns / 2));
    char reason[800];
    if (c->keys.access_key)
        log_warn("AWS credentials not refreshed, the old ones stay in use",
                 LOG_STR("provider", c->provider),
                 LOG_STR("reason", error_text(&c->err, reason, sizeof(reason))));
    if (is_other && c->changed)
        c->changed(c->user);
}

// May call changed, in which c may be freed.
static void on_fetched(void *user, int r)
{
    struct aws_credentials *c = user;
    c->is_fetching = false;
    if (r == 0)
        take_success(c);
    else
        take_failure(c, r);
}

static void fetch_now(struct aws_credentials *c)
{
    if (c->is_fetching)
        return;
    loop_timer_stop(c->next);
    c->is_fetching = true;
    c->fetched_ns = now_ns(c);
    c->fetch = (struct aws_fetch){
        .region = c->region,
        .top_role = c->role_arn,
        .done = on_fetched,
        .user = c,
    };
    int r = aws_fetch_start(&c->fetch, c->env);
    if (r != AWS_PENDING)
        on_fetched(c, r);
}

static void on_next(void *user)
{
    fetch_now(user);
}

static void on_expiry(void *user)
{
    struct aws_credentials *c = user;
    aws_key_set_deinit(&c->keys);
    if (c->changed)
        c->changed(c->user);
}

static char *copy_given(const char *text, bool *failed)
{
    char *copy = text && *text ? sv_dup(sv_from(text)) : NULL;
    *failed |= text && *text && !copy;
    return copy;
}

int aws_credentials_new(const struct aws_env *env, const char *role_arn, const char *region,
                        struct aws_credentials **out)
{
    struct aws_credentials *c = calloc(1, sizeof(*c));
    bool failed = false;
    if (!c)
        return -ENOMEM;
    c->env = env;
    c->role_arn = copy_given(role_arn, &failed);
    c->region = copy_given(region, &failed);
    int r = failed ? -ENOMEM : loop_timer_new(env->loop, on_next, c, &c->next);
    if (r == 0)
        r = loop_timer_new(env->loop, on_expiry, c, &c->expiry);
    if (r < 0) {
        aws_credentials_free(c);
        return r;
    }
    *out = c;
    fetch_now(c);
    return 0;
}

void aws_credentials_free(struct aws_credentials *c)
{
    if (!c)
        return;
    aws_fetch_deinit(&c->fetch);
    aws_key_set_deinit(&c->keys);
    loop_timer_free(c->next);
    loop_timer_free(c->expiry);
    free(c->role_arn);
    free(c->region);
    free(c);
}

int aws_credentials_get(const struct aws_credentials *c, struct aws_keys *out, struct error *err)
{
    const struct aws_key_set *k = &c->keys;
    if (k->access_key && clock_mono_ns() < k->expires_ns) {
        *out = (struct aws_keys){
            .access_key = sv_from(k->access_key),
            .secret_key = sv_from(k->secret_key),
            .session_token = sv_from(k->session_token),
        };
        return 0;
    }
    if (c->failure == 0)
        return -EAGAIN;
    if (err)
        *err = c->err;
    return c->failure;
}

void aws_credentials_watch(struct aws_credentials *c, void (*changed)(void *user), void *user)
{
    c->changed = changed;
    c->user = user;
}

void aws_credentials_expire(struct aws_credentials *c)
{
    uint64_t since_ns = now_ns(c) - c->fetched_ns;
    uint64_t delay_ns = since_ns < EXPIRE_LEAST_NS ? EXPIRE_LEAST_NS - since_ns : 0;
    if (!c->is_fetching && now_ns(c) + delay_ns < c->next_ns)
        set_next(c, delay_ns);
}

const char *aws_credentials_provider(const struct aws_credentials *c)
{
    return c->provider;
}
