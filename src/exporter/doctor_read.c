// SPDX-License-Identifier: Apache-2.0
#include "exporter/doctor_read.h"

#include <stdio.h>

#include "base/num.h"

// The local address is the second word of a line, the state (0A: listens) the fourth, the inode the
// tenth.
static void read_line(struct sv line, struct sv port, struct doctor_listeners *l)
{
    struct sv word;
    unsigned at = 0;
    bool matches = true;
    while (matches && l->count < DOCTOR_LISTENERS_MOST && sv_next(&line, ' ', &word)) {
        if (word.len == 0)
            continue;
        at++;
        if (at == 2)
            matches = sv_ends_with(word, port);
        else if (at == 4)
            matches = sv_equals(word, SV("0A"));
        else if (at == 10)
            l->count += num_parse_u64(word, 1, UINT64_MAX, &l->inodes[l->count]) == 0;
    }
}

void doctor_read_listeners(struct sv table, unsigned port, struct doctor_listeners *out)
{
    struct sv line;
    char text[8];
    (void)snprintf(text, sizeof(text), ":%04X", port & 0xffff);
    while (sv_next(&table, '\n', &line))
        read_line(line, sv_from(text), out);
}

int doctor_read_admin_only(struct sv params)
{
    const struct sv key = SV("RmProfilingAdminOnly: ");
    struct sv line;
    while (sv_next(&params, '\n', &line)) {
        if (!sv_starts_with(line, key))
            continue;
        struct sv value = sv_sub(line, key.len, line.len);
        if (sv_equals(value, SV("0")))
            return 0;
        return sv_equals(value, SV("1")) ? 1 : -1;
    }
    return -1;
}
