// SPDX-License-Identifier: Apache-2.0
// What the doctor reads in files of the kernel and of NVIDIA's driver. Bytes in, answers out.
#pragma once

#include <stdint.h>

#include "base/sv.h"

#define DOCTOR_LISTENERS_MOST 16

// Inodes of the sockets that listen on a port; those beyond the array are left out.
struct doctor_listeners {
    uint64_t inodes[DOCTOR_LISTENERS_MOST];
    size_t count;
};
// Adds those of a table: /proc/net/tcp or tcp6, proc(5). Lines of another shape are passed over.
void doctor_read_listeners(struct sv table, unsigned port, struct doctor_listeners *out);

// The driver's /proc/driver/nvidia/params: whether profiling is for administrators. -1: it does not
// say.
int doctor_read_admin_only(struct sv params);
