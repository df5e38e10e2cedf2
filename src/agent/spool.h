// SPDX-License-Identifier: Apache-2.0
// Batches on disk until they are delivered: a directory of segment files (README.md, "spool"). What
// was appended and synced survives a kill and a loss of power; what was acknowledged is not found
// again after a kill.
//
// Every function may block on the disk, and only one thread may be inside a spool at a time: they
// are called from one pool job after the other (delivery_disk.h), or on the loop while none runs.
//
// fsync: a record counts as spooled after spool_sync (fdatasync; the directory is synced when a
// segment is made). Acknowledgements are not synced: after a loss of power, batches that were
// delivered shortly before are sent again.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/spool_record.h"
#include "base/error.h"

struct spool_ref {    // where a record stands
    uint32_t segment; // 0: nowhere
    uint32_t offset, bytes;
};

struct spool;
// Makes the directory (0700) when it is missing, and locks it. 0; -EBUSY: another process has it;
// -ENOMEM; other negative errno: it cannot be made or written. *err says which and why.
int must_use spool_open(const char *directory, uint64_t max_bytes, struct spool **out,
                        struct error *err);
// The process before did not close it in order.
bool spool_was_unclean(const struct spool *s);

struct spool_recovery {
    uint64_t records, events, samples; // that wait
    // Unreadable: records with a readable header, and stretches that are no record.
    uint64_t corrupt_records, corrupt_events, corrupt_samples, damaged;
    uint64_t torn_bytes; // cut off at ends of segments
    uint64_t foreign;    // names that are none of ours, and segments of another version: left alone
};
// Once, before anything is appended: looks at every segment, oldest first; found is called for each
// record that waits (info borrowed for the call) and returns 0, or -ENOMEM or -E2BIG, which ends
// the search and is forwarded: what was not looked at waits for the next process. Segments where
// nothing waits are removed. 0, -ENOMEM, -E2BIG; other negative errno: the directory cannot be
// listed.
int must_use spool_recover(struct spool *s,
                           int (*found)(void *user, const struct spool_ref *ref,
                                        const struct spool_info *info),
                           void *user, struct spool_recovery *out);
// Seals a finished record and appends it; it is on disk after spool_sync. The oldest segments go
// when there is no room for it (spool_dropped). 0, negative errno: nothing of it is left behind.
int must_use spool_append(struct spool *s, char *record, size_t bytes, struct spool_ref *out);
int must_use spool_sync(struct spool *s);
// Segments up to this one have been dropped for want of room, with all that waited there; 0: none.
uint32_t spool_dropped(const struct spool *s);
// Drops the oldest segment. False: there is none.
bool spool_drop_oldest(struct spool *s);
// The record is done with. 0 also when its segment was dropped; negative errno.
int must_use spool_acknowledge(struct spool *s, const struct spool_ref *ref);
// A record, verified, on the heap. 0; -ENOENT: dropped; -EBADMSG: unreadable or gone by now;
// -ENOMEM; other negative errno.
int must_use spool_read(struct spool *s, const struct spool_ref *ref, char **out);
uint64_t spool_file_bytes(const struct spool *s);
// in_order: everything that should be on disk is; the next process finds was_unclean false.
void spool_close(struct spool *s, bool in_order);
