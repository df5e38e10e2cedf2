// SPDX-License-Identifier: Apache-2.0
// What is known of NVIDIA's XID error codes: the text that dcgm-exporter puts into err_msg, how bad
// each is and what to do about it. The rows are generated (script/make-catalogue) from data/xid.tsv
// and data/xid-messages.tsv into xid_table.c; severity and action are podgpu's reading of NVIDIA's
// published XID catalogue.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

// In rising order of what it means for the machine.
enum xid_severity {
    XID_UNKNOWN,     // reserved or retired, or newer than the table
    XID_INFO,        // nothing to do
    XID_APPLICATION, // the application's fault, or its loss alone
    XID_WARNING,     // watch, or plan a repair
    XID_CRITICAL,    // the GPU needs someone now
};

struct xid_info {
    uint16_t code;
    uint8_t severity;     // enum xid_severity
    const char *message;  // dcgm-exporter's err_msg
    const char *mnemonic; // NVIDIA's symbol, or NULL
    const char *gloss;    // what happened, in plain words
    const char *action;   // "drain+reset-gpu", "restart-app", "none", ...
};

extern const struct xid_info xid_table[]; // row i is code i
extern const size_t xid_table_count;
extern const uint16_t xid_critical_codes[]; // ascending
extern const size_t xid_critical_count;

// NULL for codes past the table. Static storage.
const struct xid_info *xid_find(uint64_t code);
// The err_msg text; "Unknown Error" for codes past the table. Never NULL.
const char *xid_error_message(uint64_t code);
bool xid_is_critical(uint64_t code);
const char *xid_severity_text(enum xid_severity severity); // "critical"
