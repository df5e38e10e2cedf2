// SPDX-License-Identifier: Apache-2.0
#include "gpu/xid.h"

const char *xid_error_message(uint64_t code)
{
    return code < xid_message_count ? xid_messages[code] : "Unknown Error";
}
