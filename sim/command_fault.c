// SPDX-License-Identifier: Apache-2.0
// fault SYMBOL delay=MS|return=CODE|hang|crash|drop [gpu=N] [count=N] [for=TIME]; fault clear
// [SYMBOL]
#include "command_internal.h"

#include <errno.h>

static int find_symbol(const struct sim_node *n, struct sv name, uint32_t *out, struct error *err)
{
    char text[80];
    sv_copy(text, sizeof(text), name);
    *out = SIM_NONE;
    if (sv_equals(name, SV("*")))
        return 0;
    *out = sim_symbol_find(n, text);
    return *out == SIM_NONE ? error_set(err, -EINVAL, "no call '%s'", text) : 0;
}

static int clear_faults(struct sim_node *n, const struct command *w, struct error *err)
{
    uint32_t symbol = SIM_NONE;
    bool all = w->count == 0;
    int rc = all ? 0 : find_symbol(n, w->list[0], &symbol, err);
    for (uint32_t i = 0; rc == 0 && i < SIM_MAX_FAULTS; i++) {
        if (all || n->faults[i].symbol == symbol)
            atomic_store(&n->faults[i].kind, SIM_FAULT_NONE);
    }
    return rc;
}

static int parse_fault(struct sim_node *n, int64_t at, const struct command *w, struct sim_fault *f,
                       struct error *err)
{
    int64_t value = 0, count;
    uint32_t kind = command_has(w, "hang")          ? SIM_FAULT_HANG
                    : command_has(w, "crash")       ? SIM_FAULT_CRASH
                    : command_has(w, "drop")        ? SIM_FAULT_DROP
                    : command_word(w, "delay").ptr  ? SIM_FAULT_DELAY
                    : command_word(w, "return").ptr ? SIM_FAULT_RETURN
                                                    : SIM_FAULT_NONE;
    if (kind == SIM_FAULT_NONE)
        return error_set(
            err, -EINVAL,
            "fault SYMBOL delay=MS|return=CODE|hang|crash|drop [gpu=N] [count=N] [for=TIME]");
    int rc = find_symbol(n, w->list[0], &f->symbol, err);
    if (rc == 0)
        rc = command_gpu(n, w, false, &f->gpu, err);
    if (rc == 0)
        rc = command_number(w, kind == SIM_FAULT_DELAY ? "delay" : "return", 0, &value, err);
    if (rc == 0)
        rc = command_number(w, "count", kind == SIM_FAULT_CRASH || kind == SIM_FAULT_DROP ? 1 : -1,
                            &count, err);
    f->from_ns = at;
    f->until_ns = SIM_FOREVER;
    if (rc == 0 && command_word(w, "for").ptr) {
        rc = sim_parse_time(command_word(w, "for"), &f->until_ns, err);
        f->until_ns += at;
    }
    if (rc == 0) {
        f->value = (int32_t)value;
        atomic_store(&f->left, count);
        atomic_store(&f->kind, kind);
    }
    return rc;
}

int command_fault_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                       struct error *err)
{
    if (w->count == 0)
        return error_set(err, -EINVAL, "fault SYMBOL ... or fault clear [SYMBOL]");
    if (sv_equals(w->list[0], SV("clear")))
        return clear_faults(n, &(struct command){w->count - 1, w->list + 1}, err);
    struct sim_fault f = {0};
    int rc = parse_fault(n, at, w, &f, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < SIM_MAX_FAULTS; i++) {
        struct sim_fault *slot = &n->faults[i];
        if (atomic_load(&slot->kind) != SIM_FAULT_NONE && atomic_load(&slot->left) != 0)
            continue;
        uint32_t kind = atomic_load(&f.kind);
        atomic_store(&slot->kind, SIM_FAULT_NONE);
        slot->symbol = f.symbol;
        slot->gpu = f.gpu;
        slot->value = f.value;
        slot->from_ns = f.from_ns;
        slot->until_ns = f.until_ns;
        atomic_store(&slot->left, atomic_load(&f.left));
        atomic_store(&slot->kind, kind);
        if (i >= atomic_load(&n->fault_slots))
            atomic_store(&n->fault_slots, i + 1);
        return 0;
    }
    return error_set(err, -ENOSPC, "no room for another fault (%u)", SIM_MAX_FAULTS);
}

int command_crash_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                       struct error *err)
{
    struct sv list[COMMAND_MAX_WORDS];
    if (w->count == 0 || w->count + 1 > COMMAND_MAX_WORDS)
        return error_set(err, -EINVAL, "crash SYMBOL [gpu=N]");
    memcpy(list, w->list, w->count * sizeof(list[0]));
    list[w->count] = SV("crash");
    return command_fault_verb(n, at, &(struct command){w->count + 1, list}, out, err);
}
