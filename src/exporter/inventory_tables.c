// SPDX-License-Identifier: Apache-2.0
// Health verdicts and peer states: whole tables that each frame replaces. A row whose device the
// inventory does not have is left out.
#include "exporter/inventory_internal.h"

#include <errno.h>
#include <stdlib.h>

// The place here of an entity of the last list, or INVENTORY_NONE.
static uint32_t place_of(const struct inventory *inv, uint32_t listed)
{
    return listed < inv->map_count ? inv->map[listed] : INVENTORY_NONE;
}

static void verdicts_take(struct inventory *inv, struct frame_verdict *rows, size_t count,
                          uint64_t taken_ns)
{
    bool same = inv->verdicts_ns && count == inv->verdict_count &&
                memcmp(rows, inv->verdicts, count * sizeof(*rows)) == 0;
    free(inv->verdicts);
    inv->verdicts = rows;
    inv->verdict_count = count;
    inv->verdicts_ns = taken_ns;
    if (!same)
        inv->layout++; // codes stand in labels
}

int inventory_apply_health(struct inventory *inv, const struct frame *frame)
{
    const struct frame_health *head = frame->as.health.head;
    if (head->generation != inv->generation)
        return 0;
    struct frame_verdict *rows = calloc(head->count + 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    size_t count = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        rows[count] = frame->as.health.list[i];
        rows[count].entity = place_of(inv, rows[count].entity);
        count += rows[count].entity != INVENTORY_NONE;
    }
    verdicts_take(inv, rows, count, head->taken_ns);
    return 0;
}

static void peers_take(struct inventory *inv, struct frame_peer *rows, size_t count,
                       uint64_t taken_ns)
{
    bool same = inv->peers_ns && count == inv->peer_count &&
                memcmp(rows, inv->peers, count * sizeof(*rows)) == 0;
    free(inv->peers);
    inv->peers = rows;
    inv->peer_count = count;
    inv->peers_ns = taken_ns;
    if (!same)
        inv->layout++; // their states stand in labels
}

int inventory_apply_peers(struct inventory *inv, const struct frame *frame)
{
    const struct frame_peers *head = frame->as.peers.head;
    if (head->generation != inv->generation)
        return 0;
    struct frame_peer *rows = calloc(head->count + 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    size_t count = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        rows[count] = frame->as.peers.list[i];
        rows[count].entity = place_of(inv, rows[count].entity);
        rows[count].peer = place_of(inv, rows[count].peer);
        count += rows[count].entity != INVENTORY_NONE && rows[count].peer != INVENTORY_NONE;
    }
    peers_take(inv, rows, count, head->taken_ns);
    return 0;
}

void inventory_tables_clear(struct inventory *inv)
{
    if (inv->verdicts_ns || inv->peers_ns)
        inv->layout++;
    free(inv->verdicts);
    free(inv->peers);
    inv->verdicts = NULL;
    inv->peers = NULL;
    inv->verdict_count = inv->peer_count = 0;
    inv->verdicts_ns = inv->peers_ns = 0;
}
