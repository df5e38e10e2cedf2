// SPDX-License-Identifier: Apache-2.0
#include "double.h"

EXPORT const char *nvmlErrorString(nvmlReturn_t code);
EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static const char *const texts[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires restart",
        [17] = "The operating system has blocked the request.",
        [18] = "RM has detected an NVML/RM version mismatch.",
        [19] = "In use",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "vGPU ECC not supported",
        [23] = "Insufficient resources",
        [24] = "Frequency not supported",
        [25] = "Argument version mismatch",
        [26] = "Deprecated",
        [27] = "Not ready",
        [28] = "GPU not found",
        [29] = "Invalid state",
        [30] = "Reset type not supported",
    };
    if (code < 0 || (unsigned)code >= sizeof(texts) / sizeof(texts[0]))
        return "Unknown Error";
    return texts[code];
}
