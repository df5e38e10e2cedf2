// SPDX-License-Identifier: Apache-2.0
#include "gpu/xid.h"

const char *xid_error_message(uint64_t code)
{
    return code < xid_message_count ? xid_messages[code] : "Unknown Error";
}

struct xid_advice xid_advice_get(uint64_t code)
{
    static const char *const severities[] = {
        [XID_UNKNOWN] = "unknown", [XID_INFO] = "info",         [XID_APP] = "app",
        [XID_WARNING] = "warning", [XID_CRITICAL] = "critical",
    };
    if (code >= xid_row_count)
        return (struct xid_advice){severities[XID_UNKNOWN],
                                   "keep the kernel log; the code is newer than this podgpu"};
    const struct xid_row *row = &xid_rows[code];
    return (struct xid_advice){severities[row->severity], xid_advice_texts[row->advice]};
}
