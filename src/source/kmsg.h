// SPDX-License-Identifier: Apache-2.0
// XID lines of the kernel log. When the GPU's firmware hangs, NVML stops answering, but the driver
// still writes
//   NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=foo, text
//   NVRM: Xid (PCI:0000:1b:00 GPU-I:05 GPU-CI:00): 94, pid='<unknown>', text
// (formats of NVIDIA's open kernel modules). Records of /dev/kmsg and plain lines are both read.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sv.h"

struct kmsg_xid {
    uint64_t bus_key; // of the GPU's PCI address
    uint32_t xid;
    uint32_t gpu_instance_id; // UINT32_MAX: the line names none
    char text[160];           // the line from "Xid" on, printable, cut at a character boundary
};

// One number for a PCI address, "0000000A:1B:00.0" as NVML writes it (its function is always 0);
// false when it is not such a text.
bool kmsg_bus_key_parse(struct sv bus_id, uint64_t *out_key);

// One record of /dev/kmsg ("6,1234,5678,-;text\n KEY=value") or one line. True when it is the
// driver's own XID line (a record written by a program is none). Engine: any bytes will do.
bool kmsg_parse(struct sv line, struct kmsg_xid *out);

// What stands before the text of a record of /dev/kmsg. False for a line without it.
struct kmsg_stamp {
    uint64_t seq;
    uint64_t boot_us; // the kernel's clock, near CLOCK_MONOTONIC
};
bool kmsg_stamp_parse(struct sv line, struct kmsg_stamp *out);
