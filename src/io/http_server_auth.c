// SPDX-License-Identifier: Apache-2.0
// Basic auth with bcrypt. A check takes 50 ms and more, so it runs on the pool while the request is
// suspended, and its outcome is kept under a keyed hash of (user, stored hash, password): passwords
// are never kept, and a changed stored hash makes old outcomes unfindable. A flood of wrong
// passwords finds a short queue, cannot push out the outcomes of those who got in, and is told 503
// beyond. Requests with the same credentials share one check.
//
// One check runs at a time, the others wait here: the rest of the pool stays free for compression,
// and guessing costs the machine one core at most. The address with the fewest checks is served
// first, and when the queue is full the one with the most gives up its newest, so that a scraper
// from elsewhere gets in for the first time beside any flood.
#include <crypt.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "io/http_server_internal.h"

struct auth_check {
    struct auth_check *next;
    struct http_server *server; // NULL: it is gone
    struct http_conn *waiters;
    struct in6_addr peer;
    uint8_t hash[HTTP_TLS_HASH_BYTES];
    bool is_user_known;
    bool is_running;
    atomic_bool is_dropped; // nobody waits for it
    bool has_failed;        // no memory: nothing is known of the password
    bool is_match;
    char *stored; // bcrypt text
    char *password;
};

int http_auth_init(struct http_auth *a)
{
    *a = (struct http_auth){0};
    return http_tls_random(a->key, sizeof(a->key));
}

static void free_check(struct auth_check *c)
{
    if (c->password)
        explicit_bzero(c->password, strlen(c->password));
    free(c->password);
    if (c->stored)
        explicit_bzero(c->stored, strlen(c->stored));
    free(c->stored);
    free(c);
}

void http_auth_deinit(struct http_auth *a)
{
    for (struct auth_check *c = a->checks, *next; c; c = next) {
        next = c->next;
        c->server = NULL;
        c->waiters = NULL;
        atomic_store(&c->is_dropped, true);
        if (!c->is_running)
            free_check(c);
    }
    a->checks = NULL;
    explicit_bzero(a, sizeof(*a));
}

// --- Outcomes ---

static struct auth_result *find_result(struct http_auth *a, const uint8_t *hash)
{
    for (size_t i = 0; i < LIMIT_HTTP_AUTH_CACHE; i++) {
        struct auth_result *r = &a->results[i];
        if (r->used && memcmp(r->hash, hash, HTTP_TLS_HASH_BYTES) == 0)
            return r;
    }
    return NULL;
}

// An empty place, else the longest unused refusal, else the longest unused grant; a refusal never
// displaces a grant.
static struct auth_result *find_place(struct http_auth *a, bool for_grant)
{
    struct auth_result *best = NULL;
    for (size_t i = 0; i < LIMIT_HTTP_AUTH_CACHE; i++) {
        struct auth_result *r = &a->results[i];
        if (!r->used)
            return r;
        if (r->is_granted && !for_grant)
            continue;
        if (!best || r->is_granted < best->is_granted ||
            (r->is_granted == best->is_granted && r->used < best->used))
            best = r;
    }
    return best;
}

static void keep_result(struct http_auth *a, const uint8_t *hash, bool is_granted)
{
    struct auth_result *r = find_result(a, hash);
    if (!r)
        r = find_place(a, is_granted);
    if (!r)
        return;
    memcpy(r->hash, hash, HTTP_TLS_HASH_BYTES);
    r->is_granted = is_granted;
    r->used = ++a->uses;
}

// --- On the pool ---

static bool is_same_text(const char *a, const char *b)
{
    size_t len = strlen(a);
    unsigned char difference = strlen(b) != len;
    for (size_t i = 0; i < len && !difference; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return !difference;
}

static void check_on_pool(void *user)
{
    struct auth_check *c = user;
    if (atomic_load(&c->is_dropped))
        return;
    struct crypt_data *data = calloc(1, sizeof(*data));
    c->has_failed = !data;
    if (!data)
        return;
    const char *made = crypt_rn(c->password, c->stored, data, sizeof(*data));
    c->is_match = made && is_same_text(c->stored, made);
    explicit_bzero(data, sizeof(*data));
    free(data);
}

static void unlink_check(struct http_auth *a, const struct auth_check *c)
{
    struct auth_check **at = &a->checks;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
}

// Those who wait for it ask again and find the outcome.
static void end_check(struct http_server *s, struct auth_check *c, enum auth_verdict verdict)
{
    unlink_check(&s->auth, c);
    for (struct http_conn *w = c->waiters, *next; w; w = next) {
        next = TAKE_PTR(w->check_next);
        w->is_checked = true;
        w->verdict = verdict;
        memcpy(w->checked_hash, c->hash, HTTP_TLS_HASH_BYTES);
        MHD_resume_connection(w->mhd);
    }
    http_server_run_later(s);
    free_check(c);
}

static void run_next(struct http_server *s);

static void checked(void *user)
{
    struct auth_check *c = user;
    struct http_server *s = c->server;
    if (!s) {
        free_check(c);
        return;
    }
    bool is_granted = c->is_match && c->is_user_known;
    bool has_failed = c->has_failed;
    if (!has_failed)
        keep_result(&s->auth, c->hash, is_granted);
    end_check(s, c, has_failed ? AUTH_BUSY : is_granted ? AUTH_GRANTED : AUTH_DENIED);
    run_next(s);
}

// --- On the loop ---

static unsigned count_of_peer(const struct http_auth *a, const struct in6_addr *peer)
{
    unsigned count = 0;
    for (const struct auth_check *c = a->checks; c; c = c->next)
        count += IN6_ARE_ADDR_EQUAL(&c->peer, peer);
    return count;
}

// The oldest check of the address that has the fewest.
static struct auth_check *find_next(const struct http_auth *a)
{
    struct auth_check *best = NULL;
    unsigned fewest = 0;
    for (struct auth_check *c = a->checks; c; c = c->next) {
        unsigned count = count_of_peer(a, &c->peer);
        if (best && count >= fewest)
            continue;
        fewest = count;
        best = c;
    }
    return best;
}

static void run_next(struct http_server *s)
{
    struct http_auth *a = &s->auth;
    while (a->checks && !a->checks->is_running) {
        struct auth_check *c = find_next(a);
        unlink_check(a, c);
        c->next = a->checks;
        a->checks = c;
        int r = loop_job_start(s->loop, check_on_pool, checked, c);
        c->is_running = r == 0;
        if (r == 0)
            return;
        log_error("passwords can't be checked now", LOG_ERRNO(r), LOG_LIMIT(""));
        end_check(s, c, AUTH_BUSY);
    }
}

static void add_waiter(struct auth_check *check, struct http_conn *conn)
{
    conn->check_next = check->waiters;
    check->waiters = conn;
    http_conn_set_phase(conn, CONN_CHECKING);
    MHD_suspend_connection(conn->mhd);
}

// The newest check, which is not running, of the address that has the most.
static struct auth_check *find_displaceable(const struct http_auth *a, unsigned *out_count)
{
    struct auth_check *found = NULL;
    *out_count = 0;
    for (struct auth_check *c = a->checks; c; c = c->next) {
        unsigned count = c->is_running ? 0 : count_of_peer(a, &c->peer);
        if (count >= *out_count && count > 0) {
            *out_count = count;
            found = c;
        }
    }
    return found;
}

static bool make_room(struct http_server *s, const struct in6_addr *peer)
{
    unsigned all = 0, of_peer = count_of_peer(&s->auth, peer), most;
    for (const struct auth_check *c = s->auth.checks; c; c = c->next)
        all++;
    if (of_peer >= LIMIT_HTTP_AUTH_PENDING_PER_IP)
        return false;
    if (all < LIMIT_HTTP_AUTH_PENDING)
        return true;
    struct auth_check *victim = find_displaceable(&s->auth, &most);
    if (!victim || most <= of_peer + 1)
        return false;
    end_check(s, victim, AUTH_BUSY);
    return true;
}

static struct auth_check *find_check(const struct http_auth *a, const uint8_t *hash)
{
    struct auth_check *c = a->checks;
    while (c && memcmp(c->hash, hash, HTTP_TLS_HASH_BYTES) != 0)
        c = c->next;
    return c;
}

static struct auth_check *new_check(struct http_server *s, const struct in6_addr *peer,
                                    const char *stored, struct sv password)
{
    struct auth_check *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    *c = (struct auth_check){.server = s, .peer = *peer};
    c->stored = sv_dup(sv_from(stored));
    c->password = sv_dup(password);
    if (c->stored && c->password)
        return c;
    free_check(c);
    return NULL;
}

static enum auth_verdict start_check(struct http_server *s, struct http_conn *conn,
                                     const struct web_user *user, const char *stored,
                                     struct sv password, const uint8_t *hash)
{
    struct auth_check *c = find_check(&s->auth, hash);
    if (c) {
        add_waiter(c, conn);
        return AUTH_WAIT;
    }
    c = make_room(s, &conn->peer) ? new_check(s, &conn->peer, stored, password) : NULL;
    if (!c)
        return AUTH_BUSY;
    c->is_user_known = user != NULL;
    memcpy(c->hash, hash, HTTP_TLS_HASH_BYTES);
    struct auth_check **at = &s->auth.checks;
    while (*at)
        at = &(*at)->next;
    *at = c;
    add_waiter(c, conn);
    run_next(s);
    return AUTH_WAIT;
}

// What a check is kept under. The lengths keep the texts apart. Who is not known is checked against
// another user's text, and may be given just that text later.
static int hash_credentials(const struct http_auth *a, struct sv user, bool is_known,
                            const char *stored, struct sv password,
                            uint8_t out[HTTP_TLS_HASH_BYTES])
{
    struct buf text = BUF_INIT(2 * LIMIT_HTTP_CREDENTIALS_BYTES);
    int r = buf_reserve(&text, 2 * LIMIT_HTTP_CREDENTIALS_BYTES); // in one piece, to be erased
    buf_add_fmt(&text, "%d %zu %zu %s ", is_known, user.len, password.len, stored);
    buf_add_sv(&text, user);
    buf_add_sv(&text, password);
    if (r == 0)
        r = text.error;
    if (r == 0)
        r = http_tls_hash(a->key, buf_sv(&text), out);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_deinit(&text);
    return r;
}

static enum auth_verdict check_credentials(struct http_server *s, struct http_conn *conn,
                                           struct sv name, struct sv password)
{
    const struct web_config *web = &s->web->config;
    const struct web_user *user = web_config_find_user(web, name);
    // An unknown user costs as much time as a known one.
    const char *stored = user ? user->hash : web->users[0].hash;
    uint8_t hash[HTTP_TLS_HASH_BYTES];
    if (memchr(password.ptr, '\0', password.len))
        return AUTH_DENIED; // crypt would see only what is before it
    if (hash_credentials(&s->auth, name, user != NULL, stored, password, hash) < 0)
        return AUTH_BUSY;
    if (conn->is_checked && memcmp(conn->checked_hash, hash, HTTP_TLS_HASH_BYTES) == 0)
        return conn->verdict;
    struct auth_result *known = find_result(&s->auth, hash);
    if (!known)
        return start_check(s, conn, user, stored, password, hash);
    known->used = ++s->auth.uses;
    return known->is_granted ? AUTH_GRANTED : AUTH_DENIED;
}

enum auth_verdict http_auth_check(struct http_server *s, struct http_conn *conn,
                                  const char *authorization)
{
    char credentials[LIMIT_HTTP_CREDENTIALS_BYTES];
    struct sv user, password;
    enum auth_verdict verdict = AUTH_DENIED;
    if (authorization && http_basic_decode(sv_from(authorization), credentials, sizeof(credentials),
                                           &user, &password) == 0)
        verdict = check_credentials(s, conn, user, password);
    explicit_bzero(credentials, sizeof(credentials));
    return verdict;
}
