// SPDX-License-Identifier: Apache-2.0
// What is known of NVIDIA's XID error codes: the text that dcgm-exporter puts into err_msg, and
// which need someone now, and what to do about each. The tables are generated
// (script/make-catalogue) from data/xid-messages.tsv, data/xid.tsv and data/xid-actions.tsv into
// xid_table.c; severity and advice are podgpu's reading of NVIDIA's published XID catalogue.
#pragma once

#include <stdint.h>

#include "base/macros.h"

extern const char *const xid_messages[]; // by code
extern const size_t xid_message_count;
extern const uint16_t xid_critical_codes[]; // ascending
extern const size_t xid_critical_count;

enum xid_severity {
    XID_UNKNOWN, // reserved or retired codes
    XID_INFO,
    XID_APP, // mostly the application's own fault
    XID_WARNING,
    XID_CRITICAL,
};
// By code; advice is a place in xid_advice_texts.
struct xid_row {
    uint8_t severity, advice;
};
extern const struct xid_row xid_rows[];
extern const size_t xid_row_count;
extern const char *const xid_advice_texts[];

// What to do, for people. Of codes past the table: severity unknown. Static text, never NULL.
struct xid_advice {
    const char *severity; // "unknown", "info", "app", "warning" or "critical"
    const char *text;
};
struct xid_advice xid_advice_get(uint64_t code);

// The err_msg text; "Unknown Error" for codes past the table. Never NULL.
const char *xid_error_message(uint64_t code);
