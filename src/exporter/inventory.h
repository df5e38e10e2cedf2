// SPDX-License-Identifier: Apache-2.0
// What one source tells of the devices now: entities, the last value of each watched field, XID
// history, health verdicts, peer states. An engine: frames and times come in as arguments. Where
// there are two sources, each has its own inventory; device_view.h joins them.
//
// Devices are recognised over new lists and new helpers (a GPU by UUID, else bus id, else index; an
// instance by its MIG UUID, else its GPU and GPU instance id; all others by kind, parent and id),
// so XID history and values survive a helper restart. A GPU that is no longer enumerated stays
// listed as lost, so that its evidence does; anything else that is gone is dropped.
#pragma once

#include "exporter/config.h"
#include "gpu/frame.h"
#include "gpu/selection.h"

struct inventory_value {
    uint64_t taken_ns; // 0: never
    uint8_t status;    // enum frame_status
    uint8_t type;      // enum frame_value_type
    union {
        int64_t i64;
        double f64;
        char *string; // owned
    } value;
};

struct inventory_xid {
    uint32_t code;
    uint64_t count;
    uint64_t last_wall_ns;
};

struct inventory_entity {
    struct frame_entity info; // info.parent is an index in inventory.entities
    bool present;             // in the last ENTITIES; a lost GPU stays with present and state LOST
    bool up;
    const char *down_reason;        // static; "" while up
    struct inventory_value *values; // one per watched field, same order as inventory.fields
    struct inventory_xid *xids;     // ascending by code
    size_t xid_count;
    int64_t last_xid; // -1: none seen since start

    // Private to inventory*.c
    struct inventory_value last_xid_value;
    const char *mark; // set by inventory_mark_down until the next list
};

struct inventory {
    // First the GPUs by index, each followed by its instances as listed, each of these by its
    // compute instances. Then, each kind standing together: switches by id; links by owner (those
    // of GPUs first) and number; CPUs by id; cores by CPU and id. A parent stands before its parts.
    struct inventory_entity *entities;
    size_t entity_count;
    uint16_t *fields; // ascending
    size_t field_count;
    uint32_t watch_id;
    uint32_t generation;
    bool state_known; // a STATE has come; false: no helper has answered yet
    struct frame_state state;
    uint64_t layout; // grows whenever entities, their identity, state or label strings change
    uint64_t last_sample_ns[FIELD_CLASS_COUNT];
    uint64_t last_duration_ns;
    uint64_t samples;
    uint64_t dropped; // text values and XID codes over a ceiling
    // DCGM: set it after inventory_init. What was read through a host engine is not shown a moment
    // longer than that answers: a STATE that is not READY then does what inventory_disconnect does.
    // Else values stand until they are too old, so that a crash of the helper costs a sample.
    bool ends_at_once;
    // The last HEALTH and PEERS frames, entities mapped to places here; owned. Gone when the list
    // changes. taken_ns 0: none.
    struct frame_verdict *verdicts;
    size_t verdict_count;
    uint64_t verdicts_ns;
    struct frame_peer *peers;
    size_t peer_count;
    uint64_t peers_ns;

    // Private to inventory*.c
    const struct field_info **infos; // as fields; NULL: not in the catalogue
    bool *labels;                    // as fields: a change of value is a change of layout
    uint32_t *map; // index in the last ENTITIES to index in entities; UINT32_MAX: none
    size_t map_count;
    size_t string_bytes; // of all values
    uint64_t news_ns;    // when inventory_expire first saw the last list
    bool news;
    bool stale;
    bool forget_absent;
    bool disconnected; // by inventory_disconnect, until READY is told
};

void inventory_init(struct inventory *inv);
void inventory_deinit(struct inventory *inv);
// The source is not in use any more: all is forgotten, as after inventory_init, but ends_at_once;
// layout grows.
void inventory_reset(struct inventory *inv);
// Takes the fields to keep (ascending, each once); values of fields kept over a reload survive. 0,
// -ENOMEM (nothing changed).
int must_use inventory_set_fields(struct inventory *inv, const uint16_t *fields, size_t count,
                                  uint32_t watch_id);
// Says which of the fields are printed as labels (rows of type `label`); call after each
// inventory_set_fields. Their changes make `layout` grow, and inventory_find_label keeps them while
// a device is down. Others of fields are not.
void inventory_set_labels(struct inventory *inv, const uint16_t *fields, size_t count);
// 0, -ENOMEM (a list is then not taken at all; of samples and events what could be stored is).
// Frames of another watch or generation are ignored.
int must_use inventory_apply(struct inventory *inv, const struct frame *frame);
// The place in entities of an entity of the last ENTITIES; SIZE_MAX: none.
size_t inventory_listed_place(const struct inventory *inv, uint32_t listed);
// The device that the event at this place of an EVENTS frame is counted for; NULL: none, or of
// another list.
const struct inventory_entity *inventory_event_entity(const struct inventory *inv,
                                                      const struct frame *events, uint32_t at);
// The helper is gone: nothing is up (or one GPU, index; UINT32_MAX all) with this reason (static
// text). Holds until the next list. A crash whose helper is started again at once needs no mark:
// inventory_expire notices if none follows.
void inventory_mark_down(struct inventory *inv, uint32_t index, const char *reason);
// The helper of an inventory that ends at once is gone: all is down until it is READY again, reason
// "not_connected", its values have the status FRAME_NOT_CONNECTED until they are read anew, and
// health and peers are not known. Labels and XID history stay.
void inventory_disconnect(struct inventory *inv);
// False while nothing can be read: disconnected, not READY, or not heard of yet.
bool inventory_is_connected(const struct inventory *inv);
// Call once a tick before rendering: without any sample for max(3 x fast period, 15 s) all is down,
// reason "stale".
void inventory_expire(struct inventory *inv, const uint64_t *period_ns, uint64_t now_ns);
// GPUs missing from the next list were taken away on purpose (release, then attach): drop them
// instead of keeping them as lost; those kept already go too.
void inventory_forget_absent(struct inventory *inv);

// How old a value that is sampled at this period may be: max(3 x period, 15 s).
uint64_t inventory_horizon_ns(uint64_t period_ns);
// Both ways: a value from far in the future is as wrong as an old one.
static inline bool inventory_is_current(uint64_t taken_ns, uint64_t now_ns, uint64_t horizon_ns)
{
    return (now_ns > taken_ns ? now_ns - taken_ns : taken_ns - now_ns) <= horizon_ns;
}

// A GPU, an instance or a compute instance: what has XIDs and looks values up at its GPU.
static inline bool inventory_is_of_gpu(const struct inventory_entity *e)
{
    return e->info.kind <= FRAME_ENTITY_GPU_CI;
}
// The place of the GPU, switch or CPU that an entity is, or is a part of.
static inline size_t inventory_top(const struct inventory *inv, size_t entity)
{
    while (inv->entities[entity].info.parent != entity)
        entity = inv->entities[entity].info.parent;
    return entity;
}
// The place of the entity that has a field's value for this one: fields above the level of an
// instance or compute instance are its parent's or GPU's; all others have their own.
size_t inventory_value_place(const struct inventory *inv, size_t entity,
                             const struct field_info *field);
// Index in inv->fields, or SIZE_MAX.
size_t inventory_field_index(const struct inventory *inv, uint16_t field);
// The value of a field for an entity, as a page at now_ns may show it: NULL when unknown, not OK,
// or older than its horizon, or the entity is down. It is looked up at inventory_value_place.
// DCGM_FI_DEV_XID_ERRORS: the last code is evidence, so it neither ages
// nor ends with the device: a GPU shows the newest of its own and its instances' codes, an instance
// the newest of its own and those of its GPU that no instance owns, and likewise below; the
// err_code label must come from the value returned. With none seen, the source's own record (0
// while it listens).
const struct inventory_value *inventory_find(const struct inventory *inv,
                                             const struct inventory_entity *entity,
                                             const struct field_info *field,
                                             const uint64_t *period_ns, uint64_t now_ns);
// The value of a field printed as a label: the last one known, whatever its age and also while the
// device is down (else every series of a lost GPU would change its name). NULL when unknown.
const struct inventory_value *inventory_find_label(const struct inventory *inv,
                                                   const struct inventory_entity *entity,
                                                   const struct field_info *field);
// The status of a field's last record for an entity (FRAME_OK: it has a value, however old;
// FRAME_NO_DATA: not asked yet or not watched; FRAME_LOST: the device is lost), of
// inventory_value_place.
enum frame_status inventory_field_status(const struct inventory *inv,
                                         const struct inventory_entity *entity, uint16_t field);
// Places of the GPUs and instances that --devices chooses, in output order; out has room for all
// entities. 0 with *out_count; -ENOMEM; -ENODEV with *err: an id that was asked for is not there.
int must_use inventory_select_gpus(const struct inventory *inv, const struct selection *s,
                                   size_t *out, size_t *out_count, struct error *err);
