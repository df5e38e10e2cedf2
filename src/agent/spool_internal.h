// SPDX-License-Identifier: Apache-2.0
// The directory and its table of segments, shared by spool.c (open, append, acknowledge, close) and
// spool_recover.c (what an earlier process left).
#pragma once

#include "agent/spool.h"

struct spool_segment {
    uint32_t id;
    uint32_t waiting; // records not acknowledged
    uint64_t bytes;   // of the file
};

struct spool {
    int directory, lock;
    int active; // descriptor of the last segment while it takes records; -1
    int other;  // of segment other_id, kept from one read or acknowledgement to the next; -1
    uint32_t other_id;
    uint32_t dropped; // see spool_dropped
    uint32_t next_id;
    uint64_t next_sequence;
    uint64_t max_bytes, segment_bytes;
    uint64_t total_bytes;           // of all segments
    struct spool_segment *segments; // ids rising; the active one is the last
    size_t count, room;
    bool was_unclean;
};

#define SPOOL_SEGMENT_NAME_BYTES 15 // 8 hex digits, ".spool", NUL

void spool_segment_name(uint32_t id, char out[SPOOL_SEGMENT_NAME_BYTES]);
// The id a file's name stands for; 0: none of ours.
uint32_t spool_segment_id(const char *name);
// A new last entry of the table. 0, -ENOMEM, -E2BIG (LIMIT_SPOOL_SEGMENTS).
int must_use spool_segment_add(struct spool *s, const struct spool_segment *segment);
// Unlinks its file and takes it off the table.
void spool_segment_remove(struct spool *s, size_t index);
