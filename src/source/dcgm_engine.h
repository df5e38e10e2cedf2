// SPDX-License-Identifier: Apache-2.0
// The way to a host engine: a running one first, in the order given (TCP host[:port], tcp://,
// unix:///PATH, vsock://), each proved by a call, since a connect may say OK without a link; else,
// where that is allowed and nobody listens at any of them (another owner of the profiling counters
// is left alone), one embedded in this process.
#pragma once

#include "source/dcgm_library.h"

#define DCGM_ADDRESSES_MAX 8

struct dcgm_engine_options {
    const char *addresses[DCGM_ADDRESSES_MAX];
    uint32_t address_count;
    bool embed;
    uint32_t timeout_ms; // of a connect, 0: 3000
};

// One attempt. READY with d->engine set, or why not with *vendor_code and one line in text.
enum frame_state_code dcgm_engine_open(struct dcgm *d, const struct dcgm_engine_options *o,
                                       int32_t *vendor_code, char *text, size_t text_bytes);
// Disconnects or stops the embedded engine; also after d->lost. Nothing of the engine's is known
// afterwards: groups, field groups and watches are gone.
void dcgm_engine_close(struct dcgm *d);
