// SPDX-License-Identifier: Apache-2.0
#include "scripted_credentials.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

int __real_aws_credentials_get(const struct aws_credentials *c, struct aws_keys *out,
                               struct error *err);
int __wrap_aws_credentials_get(const struct aws_credentials *c, struct aws_keys *out,
                               struct error *err);
void __real_aws_credentials_watch(struct aws_credentials *c, void (*changed)(void *user),
                                  void *user);
void __wrap_aws_credentials_watch(struct aws_credentials *c, void (*changed)(void *user),
                                  void *user);
void __real_aws_credentials_expire(struct aws_credentials *c);
void __wrap_aws_credentials_expire(struct aws_credentials *c);
void __real_aws_credentials_free(struct aws_credentials *c);
void __wrap_aws_credentials_free(struct aws_credentials *c);

// Its own layout of the type: the real one's is nobody's business here.
struct aws_credentials {
    struct scripted_credentials script;
    struct loop_timer *timer;
    void (*changed)(void *user);
    void *user;
    unsigned expired;
    size_t current;
    bool is_fetching;
};

static const struct aws_credentials *scripted; // the one of them that is ours

static void fetched(void *user)
{
    struct aws_credentials *c = user;
    if (c->expired && c->script.has_two)
        c->current = 1;
    c->is_fetching = false;
    if (c->changed)
        c->changed(c->user);
}

int scripted_credentials_new(struct loop *loop, const struct scripted_credentials *script,
                             struct aws_credentials **out)
{
    struct aws_credentials *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->script = *script;
    if (loop_timer_new(loop, fetched, c, &c->timer) < 0) {
        free(c);
        return -ENOMEM;
    }
    if (script->first_ms) {
        c->is_fetching = true;
        loop_timer_set(c->timer, script->first_ms * NS_PER_MS, 0);
    }
    scripted = c;
    *out = c;
    return 0;
}

unsigned scripted_credentials_expired(const struct aws_credentials *c)
{
    return c == scripted ? c->expired : 0;
}

int __wrap_aws_credentials_get(const struct aws_credentials *c, struct aws_keys *out,
                               struct error *err)
{
    if (c != scripted)
        return __real_aws_credentials_get(c, out, err);
    const struct scripted_keys *k = &c->script.keys[c->current];
    if (c->is_fetching && !(c->expired && c->script.is_quiet))
        return -EAGAIN;
    if (c->script.has_none)
        return error_set(err, -ENOENT, "no credentials: looked nowhere");
    *out = (struct aws_keys){sv_from(k->access_key), sv_from(k->secret_key),
                             sv_from(k->session_token ? k->session_token : "")};
    return 0;
}

void __wrap_aws_credentials_watch(struct aws_credentials *c, void (*changed)(void *user),
                                  void *user)
{
    if (c != scripted) {
        __real_aws_credentials_watch(c, changed, user);
        return;
    }
    c->changed = changed;
    c->user = user;
}

void __wrap_aws_credentials_expire(struct aws_credentials *c)
{
    if (c != scripted) {
        __real_aws_credentials_expire(c);
        return;
    }
    c->expired++;
    if (!c->script.has_two)
        return;
    c->is_fetching = true;
    loop_timer_set(c->timer, c->script.renew_ms * NS_PER_MS, 0);
}

void __wrap_aws_credentials_free(struct aws_credentials *c)
{
    if (!c)
        return;
    if (c != scripted) {
        __real_aws_credentials_free(c);
        return;
    }
    loop_timer_free(c->timer);
    free(c);
    scripted = NULL;
}
