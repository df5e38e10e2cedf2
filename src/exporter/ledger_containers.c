// SPDX-License-Identifier: Apache-2.0
// Containers by their names, and their accounts on devices. The map leads from names to the newest
// container of them; one that another UID has superseded stays for as long as facts speak of it,
// without accounts. Ended accounts stand in a list in the order in which they ended.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/ledger_internal.h"

#define NAME_BYTES_MOST 1024 // of a container's three names and UID together: Kubernetes takes 600
#define FIRST_ROOM 16

// --- Containers ---

// "namespace/pod/container", into out.
static bool write_key(const struct ledger_container *c, char *out, size_t room, size_t *out_len)
{
    const char *parts[] = {c->namespace_name, c->pod, c->container};
    size_t len = 0;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        size_t part = strlen(parts[i]) + 1; // the NUL parts them
        if (part > room - len)
            return false;
        memcpy(out + len, parts[i], part);
        len += part;
    }
    *out_len = len;
    return true;
}

static struct ledger_owner *make_owner(const struct ledger_container *c, struct sv key)
{
    struct ledger_owner *o = calloc(1, sizeof(*o) + key.len);
    if (!o)
        return NULL;
    o->pod_uid = strdup(c->pod_uid);
    if (!o->pod_uid) {
        free(o);
        return NULL;
    }
    char *names = (char *)(o + 1);
    memcpy(names, key.ptr, key.len);
    o->key_len = key.len;
    o->pub.namespace_name = names;
    o->pub.pod = names + strlen(names) + 1;
    o->pub.container = o->pub.pod + strlen(o->pub.pod) + 1;
    o->pub.pod_uid = o->pod_uid;
    return o;
}

static void free_owner(struct ledger_owner *o)
{
    if (!o)
        return;
    free(o->pod_uid);
    free(o);
}

static struct sv owner_key(const struct ledger_owner *o)
{
    return (struct sv){(const char *)(o + 1), o->key_len};
}

static int take_number(struct ledger *l, uint32_t *out_number)
{
    for (size_t i = 0; i < l->container_count; i++) {
        size_t at = (l->container_hint + i) % l->container_count;
        if (!l->containers[at]) {
            l->container_hint = at;
            *out_number = (uint32_t)at;
            return 0;
        }
    }
    size_t more = l->container_count ? l->container_count * 2 : FIRST_ROOM;
    struct ledger_owner **grown = reallocarray(l->containers, more, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    memset(grown + l->container_count, 0, (more - l->container_count) * sizeof(*grown));
    l->containers = grown;
    *out_number = (uint32_t)l->container_count;
    l->container_count = more;
    return 0;
}

// Another UID has the names now: what stood under them would be two series with the same labels.
static void supersede(struct ledger *l, struct ledger_owner *o)
{
    o->superseded = true;
    while (o->accounts)
        ledger_fold_account(l, o->accounts);
    ledger_refresh(l);
}

static struct ledger_owner *find_superseded(const struct ledger *l, struct sv key, const char *uid)
{
    for (size_t i = 0; l->superseded_count > 0 && i < l->container_count; i++) {
        struct ledger_owner *o = l->containers[i];
        if (o && o->superseded && sv_equals(owner_key(o), key) && strcmp(o->pod_uid, uid) == 0)
            return o;
    }
    return NULL;
}

static int learn_uid(struct ledger *l, struct ledger_owner *o, const char *uid)
{
    char *copy = strdup(uid);
    if (!copy)
        return -ENOMEM;
    free(o->pod_uid);
    o->pod_uid = copy;
    o->pub.pod_uid = copy;
    l->layout++;
    return 0;
}

static struct ledger_owner *add_owner(struct ledger *l, const struct ledger_container *c,
                                      struct sv key, struct ledger_owner *before)
{
    if (l->containers_known >= LIMIT_LEDGER_CONTAINERS) {
        l->stats.refused++;
        return NULL;
    }
    struct ledger_owner *o = make_owner(c, key);
    if (!o || take_number(l, &o->number) < 0 || map_put(&l->by_names, key, o, NULL) < 0) {
        free_owner(o);
        return NULL;
    }
    l->containers[o->number] = o;
    l->containers_known++;
    if (before) {
        l->superseded_count++;
        supersede(l, before);
    }
    return o;
}

static struct ledger_owner *get_owner(struct ledger *l, const struct ledger_container *c)
{
    char names[NAME_BYTES_MOST];
    struct sv key = {names, 0};
    if (!write_key(c, names, sizeof(names), &key.len) || strlen(c->pod_uid) > NAME_BYTES_MOST) {
        l->stats.refused++;
        return NULL;
    }
    struct ledger_owner *o = map_find(&l->by_names, key);
    if (o && (!*c->pod_uid || strcmp(o->pod_uid, c->pod_uid) == 0))
        return o;
    if (o && !*o->pod_uid)
        return learn_uid(l, o, c->pod_uid) < 0 ? NULL : o;
    struct ledger_owner *old = o ? find_superseded(l, key, c->pod_uid) : NULL;
    return old ? old : add_owner(l, c, key, o);
}

uint32_t ledger_container_number(struct ledger *l, const struct ledger_container *c)
{
    struct ledger_owner *o = get_owner(l, c);
    if (!o)
        return LEDGER_NONE;
    o->asked_book = l->books;
    return o->number;
}

struct ledger_owner *ledger_find_owner(const struct ledger *l, uint32_t number)
{
    return number < l->container_count ? l->containers[number] : NULL;
}

const struct ledger_container *ledger_container_at(const struct ledger *l, uint32_t number)
{
    const struct ledger_owner *o = ledger_find_owner(l, number);
    return o ? &o->pub : NULL;
}

void ledger_forget_containers(struct ledger *l)
{
    for (size_t i = 0; i < l->container_count; i++) {
        struct ledger_owner *o = l->containers[i];
        if (!o || o->accounts || o->uses || l->books - o->asked_book < LEDGER_NUMBER_BOOKS)
            continue;
        if (o->superseded)
            l->superseded_count--;
        else
            map_remove(&l->by_names, owner_key(o));
        l->containers[i] = NULL;
        l->containers_known--;
        free_owner(o);
    }
}

void ledger_containers_deinit(struct ledger *l)
{
    for (size_t i = 0; i < l->container_count; i++)
        free_owner(l->containers[i]);
    free(l->containers);
    map_deinit(&l->by_names);
}

// --- Accounts ---

struct ledger_entry *ledger_find_account(const struct ledger_unit *d, const struct ledger_owner *c)
{
    struct ledger_entry *a = c->accounts;
    while (a && a->device != d)
        a = a->next_of_container;
    return a;
}

static void list_ended(struct ledger *l, struct ledger_entry *a, uint64_t at_ns)
{
    a->ended_ns = at_ns;
    a->ended_before = l->ended_last;
    a->ended_after = NULL;
    *(l->ended_last ? &l->ended_last->ended_after : &l->ended_first) = a;
    l->ended_last = a;
    l->ended_count++;
}

static void unlist_ended(struct ledger *l, struct ledger_entry *a)
{
    *(a->ended_before ? &a->ended_before->ended_after : &l->ended_first) = a->ended_after;
    *(a->ended_after ? &a->ended_after->ended_before : &l->ended_last) = a->ended_before;
    l->ended_count--;
}

static int reserve_accounts(struct ledger *l, struct ledger_unit *d)
{
    if (d->account_count == d->account_room) {
        size_t more = d->account_room ? d->account_room * 2 : FIRST_ROOM;
        struct ledger_entry **grown = reallocarray(d->accounts, more, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        d->accounts = grown;
        d->account_room = more;
    }
    if (l->accounts_known == l->account_room) {
        size_t more = l->account_room ? l->account_room * 2 : FIRST_ROOM;
        struct ledger_entry **grown = reallocarray(l->accounts, more, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        l->accounts = grown;
        l->account_room = more;
    }
    return ledger_reserve_parties(l, d->account_count + 1);
}

int ledger_reserve_parties(struct ledger *l, size_t accounts)
{
    size_t need = accounts + LEDGER_HOLDERS + 2;
    if (need <= l->party_room)
        return 0;
    struct ledger_party *grown = reallocarray(l->parties, need + accounts, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    l->parties = grown;
    l->party_room = need + accounts;
    return 0;
}

int ledger_make_account(struct ledger *l, struct ledger_unit *d, struct ledger_owner *c,
                        uint64_t at_ns, struct ledger_entry **out)
{
    *out = ledger_find_account(d, c);
    if (*out || c->superseded)
        return 0;
    if (l->accounts_known >= LIMIT_LEDGER_ACCOUNTS) {
        l->stats.refused++;
        return 0;
    }
    if (reserve_accounts(l, d) < 0)
        return -ENOMEM;
    struct ledger_entry *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->device = d;
    a->container = c;
    a->next_of_container = c->accounts;
    c->accounts = a;
    d->accounts[d->account_count++] = a;
    l->accounts_known++;
    l->is_stale = true;
    list_ended(l, a, at_ns);
    *out = a;
    return 0;
}

void ledger_settle_account(struct ledger *l, struct ledger_entry *a, uint64_t at_ns)
{
    bool is_live = a->holds || a->runs;
    if (is_live == a->is_live)
        return;
    a->is_live = is_live;
    if (is_live) {
        unlist_ended(l, a);
        a->began_ns = a->idle_since_ns = at_ns;
    } else {
        list_ended(l, a, at_ns);
    }
}

void ledger_touch_ended(struct ledger *l, struct ledger_entry *a, uint64_t at_ns)
{
    if (a->is_live || at_ns <= a->ended_ns)
        return;
    unlist_ended(l, a);
    list_ended(l, a, at_ns);
}

static void unlink_account(struct ledger_entry *a)
{
    struct ledger_entry **link = &a->container->accounts;
    while (*link != a)
        link = &(*link)->next_of_container;
    *link = a->next_of_container;
    struct ledger_unit *d = a->device;
    size_t at = 0;
    while (d->accounts[at] != a)
        at++;
    d->account_count--;
    memmove(d->accounts + at, d->accounts + at + 1,
            (d->account_count - at) * sizeof(struct ledger_entry *));
}

void ledger_fold_account(struct ledger *l, struct ledger_entry *a)
{
    a->device->pub.ended_busy_us += a->pub.busy_us;
    a->device->board->pub.ended_energy_uj += a->pub.energy_uj;
    if (!a->is_live)
        unlist_ended(l, a);
    unlink_account(a);
    l->accounts_known--;
    l->is_stale = true;
    free(a);
}

void ledger_fold_device(struct ledger *l, struct ledger_unit *d)
{
    while (d->account_count > 0)
        ledger_fold_account(l, d->accounts[d->account_count - 1]);
}

void ledger_fold_ended(struct ledger *l, uint64_t now_ns)
{
    while (l->ended_first) {
        struct ledger_entry *a = l->ended_first;
        a->ended_ns = a->ended_ns < now_ns ? a->ended_ns : now_ns; // nobody ends in the future
        bool is_over = now_ns - a->ended_ns >= l->options.linger_ns;
        if (!is_over && l->ended_count <= LIMIT_LEDGER_ENDED)
            return;
        l->stats.early_ended += !is_over;
        ledger_fold_account(l, a);
    }
}
