// SPDX-License-Identifier: Apache-2.0
// The faults that a call of a double meets, whichever library it is of.
#pragma once

#include "node.h"

struct double_call {
    struct sim_node *node;
    uint32_t symbol;
    uint32_t gpu; // SIM_NONE: a call about none
    int64_t t;    // scenario time of the call; moves on where it was held up
    int32_t code; // of a fault that returns one, 0: none
    bool dropped; // the connection dies in this call
};

void double_meet_faults(struct double_call *c);
