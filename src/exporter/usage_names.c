// SPDX-License-Identifier: Apache-2.0
// Whose process is whose. A UID that a source of metadata knows has its name from there; the others
// are named by elimination, which is a guess that metadata overrules:
//   on some device exactly one holding pod has no UID and exactly one unknown UID runs, and
//   the UID runs on no device that the pod does not hold.
// It stands while the pod is listed, also while it runs nothing; another unknown UID takes its
// place only when the one before has not run for BINDING_QUIET_NS (a pod made anew under the same
// name). Where a source of metadata is at work it may only be late, so it has BINDING_PATIENCE_NS.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "exporter/usage_internal.h"

#define BINDING_QUIET_NS (60 * NS_PER_S)
#define BINDING_PATIENCE_NS (5 * NS_PER_S)

bool usage_is_own(const struct usage *u, const char *namespace_name, const char *pod)
{
    const char *own_pod = u->config.own_pod, *own_namespace = u->config.own_namespace;
    return own_pod && own_pod[0] && strcmp(pod, own_pod) == 0 && own_namespace &&
           strcmp(namespace_name, own_namespace) == 0;
}

// --- Bindings ---

static struct usage_binding *binding_of_pod(const struct usage *u, const char *namespace_name,
                                            const char *pod)
{
    for (size_t i = 0; i < u->binding_count; i++) {
        struct usage_binding *b = &u->bindings[i];
        if (strcmp(b->pod, pod) == 0 && strcmp(b->namespace_name, namespace_name) == 0)
            return b;
    }
    return NULL;
}

static struct usage_binding *binding_of_uid(const struct usage *u, const char *uid)
{
    for (size_t i = 0; i < u->binding_count; i++)
        if (strcmp(u->bindings[i].uid, uid) == 0)
            return &u->bindings[i];
    return NULL;
}

static void binding_deinit(struct usage_binding *b)
{
    free(b->namespace_name);
    free(b->pod);
}

static void binding_remove(struct usage *u, struct usage_binding *b)
{
    binding_deinit(b);
    *b = u->bindings[--u->binding_count];
}

void usage_forget_names(struct usage *u)
{
    for (size_t i = 0; i < u->binding_count; i++)
        binding_deinit(&u->bindings[i]);
    free(u->bindings);
    u->bindings = NULL;
    u->binding_count = 0;
}

static const char *metadata_uid(const struct usage *u, const char *namespace_name, const char *pod)
{
    return u->config.metadata ? pod_metadata_uid(u->config.metadata, namespace_name, pod) : "";
}

static bool metadata_knows(const struct usage *u, const char *uid)
{
    struct pod_metadata_identity id;
    return u->config.metadata && pod_metadata_by_uid(u->config.metadata, uid, "", &id);
}

const char *usage_uid_of(const struct usage *u, const char *namespace_name, const char *pod)
{
    const char *uid = metadata_uid(u, namespace_name, pod);
    const struct usage_binding *b = uid[0] ? NULL : binding_of_pod(u, namespace_name, pod);
    return b && b->active ? b->uid : uid;
}

static uint64_t patience_ns(const struct usage *u)
{
    struct pod_metadata_stats stats = {0};
    if (u->config.metadata)
        pod_metadata_get_stats(u->config.metadata, &stats);
    return stats.pods > 0 ? BINDING_PATIENCE_NS : 0;
}

// --- Elimination ---

static bool runs_on(const struct usage_device *d, const char *uid)
{
    for (size_t i = 0; i < d->runner_count; i++)
        if (d->runners[i].listed && strcmp(d->runners[i].pod_uid, uid) == 0)
            return true;
    return false;
}

static const struct usage_holder *holds(const struct usage_device *d, const char *namespace_name,
                                        const char *pod)
{
    for (size_t i = 0; i < d->holder_count; i++)
        if (strcmp(d->holders[i].pod, pod) == 0 &&
            strcmp(d->holders[i].namespace_name, namespace_name) == 0)
            return &d->holders[i];
    return NULL;
}

// False while its pod is not listed, is another one of that name, or has a UID from somebody who
// knows.
static bool binding_stands(const struct usage *u, const struct usage_binding *b)
{
    bool held = false;
    for (size_t i = 0; i < u->device_count && !held; i++) {
        const struct usage_holder *h = holds(&u->devices[i], b->namespace_name, b->pod);
        held = h && h->since == b->since;
    }
    return held && !metadata_uid(u, b->namespace_name, b->pod)[0] && !metadata_knows(u, b->uid);
}

static void review_bindings(struct usage *u, uint64_t now_ns)
{
    for (size_t i = 0; i < u->binding_count;) {
        struct usage_binding *b = &u->bindings[i];
        if (!binding_stands(u, b)) {
            binding_remove(u, b);
            continue;
        }
        b->confirmed = false;
        for (size_t d = 0; d < u->device_count; d++)
            if (runs_on(&u->devices[d], b->uid))
                b->seen_ns = now_ns;
        i++;
    }
}

// An unknown UID is one that neither metadata nor a binding in force names.
static bool is_unknown(const struct usage *u, const struct usage_runner *r)
{
    if (!r->listed || r->own || r->server || r->kind != PROCESS_POD || !r->pod_uid[0])
        return false;
    const struct usage_binding *b = binding_of_uid(u, r->pod_uid);
    return !(b && b->active) && !metadata_knows(u, r->pod_uid);
}

// The only one that runs there; NULL: none, or several.
static const char *only_unknown_uid(const struct usage *u, const struct usage_device *d)
{
    const char *uid = NULL;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if ((uid && strcmp(uid, r->pod_uid) == 0) || !is_unknown(u, r))
            continue;
        if (uid)
            return NULL;
        uid = r->pod_uid;
    }
    return uid;
}

static bool lacks_uid(const struct usage *u, const struct usage_holder *h, uint64_t now_ns)
{
    if (usage_is_own(u, h->namespace_name, h->pod) || metadata_uid(u, h->namespace_name, h->pod)[0])
        return false;
    const struct usage_binding *b = binding_of_pod(u, h->namespace_name, h->pod);
    return !b || !b->active || now_ns - b->seen_ns >= BINDING_QUIET_NS;
}

static const struct usage_holder *
only_nameless_holder(const struct usage *u, const struct usage_device *d, uint64_t now_ns)
{
    const struct usage_holder *found = NULL;
    for (size_t i = 0; i < d->holder_count; i++) {
        const struct usage_holder *h = &d->holders[i];
        if (!lacks_uid(u, h, now_ns))
            continue;
        if (found && (strcmp(found->pod, h->pod) != 0 ||
                      strcmp(found->namespace_name, h->namespace_name) != 0))
            return NULL;
        found = found ? found : h;
    }
    return found;
}

static bool runs_elsewhere(const struct usage *u, const char *uid, const struct usage_holder *h)
{
    for (size_t i = 0; i < u->device_count; i++)
        if (runs_on(&u->devices[i], uid) && !holds(&u->devices[i], h->namespace_name, h->pod))
            return true;
    return false;
}

static int binding_add(struct usage *u, const struct usage_holder *h, const char *uid,
                       uint64_t now_ns)
{
    if (u->binding_count >= LIMIT_USAGE_BINDINGS)
        return 0;
    struct usage_binding *more =
        reallocarray(u->bindings, u->binding_count + 1, sizeof(*u->bindings));
    if (!more)
        return -ENOMEM;
    u->bindings = more;
    struct usage_binding b = {
        .namespace_name = sv_dup(sv_from(h->namespace_name)),
        .pod = sv_dup(sv_from(h->pod)),
        .since = h->since,
        .noted_ns = now_ns,
        .seen_ns = now_ns,
        .confirmed = true,
    };
    sv_copy(b.uid, sizeof(b.uid), sv_from(uid));
    if (!b.namespace_name || !b.pod) {
        binding_deinit(&b);
        return -ENOMEM;
    }
    u->bindings[u->binding_count++] = b;
    return 0;
}

static int note_pair(struct usage *u, const struct usage_holder *h, const char *uid,
                     uint64_t now_ns)
{
    struct usage_binding *b = binding_of_pod(u, h->namespace_name, h->pod);
    if (b && strcmp(b->uid, uid) == 0) {
        b->confirmed = true;
        return 0;
    }
    if (b && b->confirmed) // on another device another one
        return 0;
    if (b)
        binding_remove(u, b);
    return binding_add(u, h, uid, now_ns);
}

// What was noted before and is not so any more was a coincidence.
static void settle_bindings(struct usage *u, uint64_t now_ns)
{
    uint64_t patience = patience_ns(u);
    for (size_t i = 0; i < u->binding_count;) {
        struct usage_binding *b = &u->bindings[i];
        if (!b->active && !b->confirmed) {
            binding_remove(u, b);
            continue;
        }
        b->active = b->active || now_ns - b->noted_ns >= patience;
        i++;
    }
}

int usage_eliminate(struct usage *u, uint64_t now_ns)
{
    int result = 0;
    review_bindings(u, now_ns);
    for (size_t i = 0; i < u->device_count; i++) {
        const struct usage_device *d = &u->devices[i];
        const struct usage_holder *h = only_nameless_holder(u, d, now_ns);
        const char *uid = h ? only_unknown_uid(u, d) : NULL;
        if (uid && !runs_elsewhere(u, uid, h) && note_pair(u, h, uid, now_ns) < 0)
            result = -ENOMEM;
    }
    settle_bindings(u, now_ns);
    return result;
}

// --- Names of processes ---

struct name {
    const char *namespace_name, *pod, *container, *uid;
};

static bool find_name(const struct usage *u, const struct usage_runner *r, struct name *out)
{
    struct pod_metadata_identity id;
    if (u->config.metadata &&
        pod_metadata_by_uid(u->config.metadata, r->pod_uid, r->container_id, &id)) {
        *out = (struct name){id.namespace_name, id.pod, id.container, id.uid};
        return true;
    }
    const struct usage_binding *b = binding_of_uid(u, r->pod_uid);
    if (!b || !b->active)
        return false;
    *out = (struct name){b->namespace_name, b->pod, "", b->uid};
    return true;
}

// Of a pod that holds the device in one container alone a process whose container nobody knows is
// that container's; in several, the pod's.
static const char *only_container(const struct usage_device *d, const struct name *n)
{
    const char *container = NULL;
    for (size_t i = 0; i < d->holder_count; i++) {
        const struct usage_holder *h = &d->holders[i];
        if (strcmp(h->pod, n->pod) != 0 || strcmp(h->namespace_name, n->namespace_name) != 0)
            continue;
        if (container)
            return "";
        container = h->container;
    }
    return container ? container : "";
}

static void name_runner(struct usage *u, const struct usage_device *d, struct usage_runner *r)
{
    struct name n;
    r->container = LEDGER_NONE;
    r->unnamed = false;
    if (r->own || r->kind != PROCESS_POD || !r->pod_uid[0])
        return;
    if (!find_name(u, r, &n)) {
        r->unnamed = true;
        return;
    }
    if (usage_is_own(u, n.namespace_name, n.pod)) {
        r->own = true;
        return;
    }
    const struct ledger_container c = {
        .namespace_name = n.namespace_name,
        .pod = n.pod,
        .container = n.container[0] ? n.container : only_container(d, &n),
        .pod_uid = n.uid,
    };
    r->container = ledger_container_number(u->config.ledger, &c);
}

// True when each pod that holds the device has a UID, so that an unknown one is none of them.
static bool holders_are_known(const struct usage *u, const struct usage_device *d)
{
    for (size_t i = 0; i < d->holder_count; i++)
        if (!usage_uid_of(u, d->holders[i].namespace_name, d->holders[i].pod)[0])
            return false;
    return true;
}

static bool several_are_unnamed(const struct usage_device *d)
{
    const char *first = NULL;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if (!r->unnamed)
            continue;
        if (first && strcmp(first, r->pod_uid) != 0)
            return true;
        first = r->pod_uid;
    }
    return false;
}

static bool is_holder(const struct usage_device *d, uint32_t container)
{
    for (size_t i = 0; i < d->told_count; i++)
        if (d->told[i].container == container)
            return true;
    return false;
}

// An MPS server works for whoever holds the device, so it is no stranger.
static bool is_foreign(const struct usage_device *d, const struct usage_runner *r, bool unnamed_are)
{
    if (r->own || r->server)
        return false;
    if (r->container != LEDGER_NONE)
        return !is_holder(d, r->container);
    if (r->kind == PROCESS_POD && r->pod_uid[0] && !r->unnamed)
        return true; // the ledger has no room for its container, so it may be anybody's
    return r->kind == PROCESS_HOST || (r->unnamed && unnamed_are);
}

// Processes of a container mostly stand one after another.
static bool is_beside(const struct usage_runner *r, const struct usage_runner *before)
{
    return r->kind == PROCESS_POD && before->kind == PROCESS_POD && !r->own && !before->own &&
           strcmp(r->pod_uid, before->pod_uid) == 0 &&
           strcmp(r->container_id, before->container_id) == 0;
}

void usage_name_runners(struct usage *u, struct usage_device *d)
{
    for (size_t i = 0; i < d->runner_count; i++) {
        struct usage_runner *r = &d->runners[i];
        if (i > 0 && is_beside(r, r - 1)) {
            r->container = r[-1].container;
            r->unnamed = r[-1].unnamed;
            continue;
        }
        name_runner(u, d, r);
    }
    bool unnamed_are = holders_are_known(u, d) || several_are_unnamed(d);
    for (size_t i = 0; i < d->runner_count; i++)
        d->runners[i].foreign = is_foreign(d, &d->runners[i], unnamed_are);
}
