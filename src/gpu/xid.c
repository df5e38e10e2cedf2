// SPDX-License-Identifier: Apache-2.0
#include "gpu/xid.h"

const struct xid_info *xid_find(uint64_t code)
{
    return code < xid_table_count ? &xid_table[code] : NULL;
}

const char *xid_error_message(uint64_t code)
{
    const struct xid_info *info = xid_find(code);
    return info ? info->message : "Unknown Error";
}

bool xid_is_critical(uint64_t code)
{
    const struct xid_info *info = xid_find(code);
    return info && info->severity == XID_CRITICAL;
}

const char *xid_severity_text(enum xid_severity severity)
{
    switch (severity) {
    case XID_UNKNOWN:
        return "unknown";
    case XID_INFO:
        return "info";
    case XID_APPLICATION:
        return "application";
    case XID_WARNING:
        return "warning";
    case XID_CRITICAL:
        return "critical";
    }
    return "unknown";
}
