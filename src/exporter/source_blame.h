// SPDX-License-Identifier: Apache-2.0
// Functions of the vendor's library that crashed their helper, or hung without asking a GPU, and
// what is to be left alone because of it. A library may crash in one function on one GPU every time
// it is asked: without the call the rest of the node can be read. Part of source_process; an
// engine, times come in as arguments.
//
// The second time the same call fails it is avoided: on that GPU, or everywhere when it asks none
// or already failed so on another GPU. A GPU on which two functions failed, or one that nothing can
// be done without, is left alone as a whole. After an hour all of this is forgotten: at the next
// start it is tried again.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define SOURCE_BLAME_MAX 32
#define SOURCE_BLAME_NS (3600 * NS_PER_S)
#define SOURCE_BLAME_TEXT 80 // "nvmlDeviceGetTemperature@3" and its end

struct source_blame {
    struct source_blame_row {
        char call[64];
        uint32_t index; // NVML's, UINT32_MAX: none, or all
        uint32_t times;
        bool avoided;
        uint64_t at_ns; // the last time
    } rows[SOURCE_BLAME_MAX];
    uint32_t count;
};

enum source_verdict {
    SOURCE_VERDICT_NONE,     // once is chance; or nothing can be done
    SOURCE_VERDICT_AVOID,    // the list of calls to avoid has grown
    SOURCE_VERDICT_SKIP_GPU, // leave the GPU alone
};
// A helper died in a call, or hung in one that asks no GPU. call: its name, not "".
enum source_verdict source_blame_note(struct source_blame *b, const char *call, uint32_t index,
                                      uint64_t now_ns);
// Forgets what is too old.
void source_blame_expire(struct source_blame *b, uint64_t now_ns);
// The i-th call to avoid, as podgpu-source's --avoid takes it; false behind the last.
bool source_blame_text(const struct source_blame *b, uint32_t i, char out[SOURCE_BLAME_TEXT]);
uint32_t source_blame_avoided(const struct source_blame *b); // how many
