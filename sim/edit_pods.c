// SPDX-License-Identifier: Apache-2.0
// Identities of pods and containers that a scenario leaves open: hashes of names and places in the
// tables, so that a pod that comes back under its name is another one.
#include "node_edit.h"

#include <stdio.h>

static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h ^ '/') * UINT64_C(0x100000001b3);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t seed_of(const struct sim_node *n, uint32_t pod, const char *what)
{
    const struct sim_pod *p = &n->pods[pod];
    uint64_t h = hash_text(UINT64_C(0xcbf29ce484222325) + pod, what);
    return hash_text(hash_text(h, sim_string(n, p->namespace_name)), sim_string(n, p->name));
}

int sim_default_uid(struct sim_node *n, uint32_t pod, uint32_t *out, struct error *err)
{
    char text[64];
    uint64_t state = seed_of(n, pod, "uid"), a = next(&state), b = next(&state);
    (void)snprintf(text, sizeof(text), "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32),
                   (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 48) & 0xfff,
                   (unsigned long long)(b & 0xffffffffffff));
    return sim_add_string(n, sv_from(text), out, err);
}

static int add_hex(struct sim_node *n, uint64_t state, unsigned words, uint32_t *out,
                   struct error *err)
{
    char text[65];
    for (unsigned i = 0; i < words; i++)
        (void)snprintf(text + (size_t)i * 16, sizeof(text) - (size_t)i * 16, "%016llx",
                       (unsigned long long)next(&state));
    return sim_add_string(n, sv_from(text), out, err);
}

int sim_default_config_hash(struct sim_node *n, uint32_t pod, uint32_t *out, struct error *err)
{
    return add_hex(n, seed_of(n, pod, "config"), 2, out, err);
}

int sim_default_container_id(struct sim_node *n, uint32_t pod, uint32_t container, uint32_t *out,
                             struct error *err)
{
    const char *name = sim_string(n, n->containers[container].name);
    return add_hex(n, hash_text(seed_of(n, pod, "container"), name), 4, out, err);
}
