// SPDX-License-Identifier: Apache-2.0
// The format of a spool's records (README.md, "spool"): one record is one batch of events for one
// log stream. An engine: bytes in, bytes out. All numbers are little-endian.
//
//   offset  bytes  header
//        0      4  magic "PGSR"
//        4      2  version, 1
//        6      2  bytes of the header, 88
//        8      8  acknowledgement: 0 while it waits; the complement of the header's checksum once
//                  it is done with. The one field that is written after the record
//       16      8  sequence, rising over all segments of a directory; below 2^62
//       24      4  bytes of what follows the header
//       28      4  events
//       32      8  samples, of all events
//       40      8  first timestamp, ms
//       48      8  last timestamp, ms
//       56      2  bytes of the log group's name
//       58      2  bytes of the log stream's name
//       60      4  0
//       64     16  XXH3-128 of what follows the header, seed: the sequence; low half first
//       80      8  low half of XXH3-128 of bytes 0..8 and 16..80, seed 0
//       88         group, stream, then for each event in order of time:
//                  8 timestamp in ms, 4 samples, 4 bytes of the message, the message
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/logs.h"
#include "base/buf.h"

#define SPOOL_HEADER_BYTES 88u
#define SPOOL_ACK_OFFSET 8u
#define SPOOL_CHECK_OFFSET 80u
#define SPOOL_EVENT_BYTES 16u // in front of each message; under LOGS_EVENT_OVERHEAD
#define SPOOL_NAME_BYTES_MAX 512u
#define SPOOL_RECORD_BYTES_MAX                                                                     \
    (SPOOL_HEADER_BYTES + 2 * SPOOL_NAME_BYTES_MAX + (uint32_t)LOGS_BATCH_BYTES_MAX)

struct spool_info { // what the header tells
    uint64_t sequence;
    uint32_t bytes; // of the whole record
    uint32_t events;
    uint64_t samples;
    int64_t first_ms, last_ms;
    struct sv group, stream; // in the record; empty unless it is whole
    bool is_acknowledged;
};

// Writing: begin, one add for each event, finish; then seal, which gives the number and the
// checksums. Errors stick in out.
void spool_record_begin(struct buf *out, struct sv group, struct sv stream);
void spool_record_add(struct buf *out, int64_t timestamp_ms, uint32_t samples, struct sv message);
// Of info only events, samples and timestamps are read.
void spool_record_finish(char *record, size_t bytes, const struct spool_info *info);
void spool_record_seal(char *record, size_t bytes, uint64_t sequence);
// What is written at SPOOL_ACK_OFFSET of a record whose bytes at SPOOL_CHECK_OFFSET these are.
void spool_record_acknowledgement(const char check[8], char out[8]);

// Reading
struct spool_event {
    int64_t timestamp_ms;
    uint32_t samples;
    struct sv message;
};
// The events of a record that was finished or checked.
struct sv spool_record_events(struct sv record);
bool spool_event_next(struct sv *events, struct spool_event *out); // false at the end
// The names in a record that was finished or checked.
void spool_record_names(struct sv record, struct sv *group, struct sv *stream);

enum spool_found {
    SPOOL_FOUND_END,
    SPOOL_FOUND_RECORD,  // whole
    SPOOL_FOUND_CORRUPT, // the header is whole, what follows it is not: info without names
    SPOOL_FOUND_DAMAGED, // no record: passed over up to the next header
    SPOOL_FOUND_TORN,    // the end of the file is no whole record; info.bytes 0: nor a header
    SPOOL_FOUND_NEWER,   // a header of another version: the file is not ours to read or remove
};
struct spool_scan { // start with the bytes of a segment and at = 0
    struct sv bytes;
    size_t at;
};
// *out_at: where what was found begins.
enum spool_found spool_scan_next(struct spool_scan *s, size_t *out_at, struct spool_info *out);
// All of the bytes must be one whole record.
bool spool_record_is_whole(struct sv record, struct spool_info *out);
