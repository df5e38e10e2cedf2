// SPDX-License-Identifier: Apache-2.0
// What is known of NVIDIA's XID error codes: the text that dcgm-exporter puts into err_msg, and
// which need someone now. The tables are generated (script/make-catalogue) from
// data/xid-messages.tsv and data/xid.tsv into xid_table.c; which codes are critical is podgpu's
// reading of NVIDIA's published XID catalogue.
#pragma once

#include <stdint.h>

#include "base/macros.h"

extern const char *const xid_messages[]; // by code
extern const size_t xid_message_count;
extern const uint16_t xid_critical_codes[]; // ascending
extern const size_t xid_critical_count;

// The err_msg text; "Unknown Error" for codes past the table. Never NULL.
const char *xid_error_message(uint64_t code);
