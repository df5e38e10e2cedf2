// SPDX-License-Identifier: Apache-2.0
// Input: 'R' and the bytes of a segment as they are, or 'S' and a record whose checksums are made
// to fit. Whatever is told as whole obeys the limits of PutLogEvents and is inside the input; every
// byte is passed once.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/spool_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_whole(struct sv record, const struct spool_info *info)
{
    struct sv events = spool_record_events(record), group, stream;
    struct spool_event e;
    uint64_t count = 0, samples = 0, bytes = 0;
    int64_t last_ms = info->first_ms;
    for (; spool_event_next(&events, &e); count++) {
        assert(e.message.len > 0 && e.message.len <= LOGS_EVENT_BYTES_MAX - LOGS_EVENT_OVERHEAD);
        assert(e.message.ptr + e.message.len <= record.ptr + record.len);
        assert(e.timestamp_ms >= last_ms && e.timestamp_ms <= info->last_ms);
        last_ms = e.timestamp_ms;
        samples += e.samples;
        bytes += e.message.len + LOGS_EVENT_OVERHEAD;
    }
    assert(events.len == 0 && count == info->events && samples == info->samples);
    assert(count > 0 && count <= LOGS_BATCH_EVENTS_MAX && bytes <= LOGS_BATCH_BYTES_MAX);
    assert(info->last_ms - info->first_ms <= LOGS_BATCH_SPAN_MS);
    spool_record_names(record, &group, &stream);
    assert(sv_equals(group, info->group) && sv_equals(stream, info->stream));
    assert(group.len <= SPOOL_NAME_BYTES_MAX && stream.len <= SPOOL_NAME_BYTES_MAX);
}

static void scan(struct sv bytes)
{
    struct spool_scan s = {.bytes = bytes};
    struct spool_info info, again;
    enum spool_found what;
    size_t at, expected = 0;
    while ((what = spool_scan_next(&s, &at, &info)) != SPOOL_FOUND_END) {
        assert(at == expected && s.at > at && s.at <= bytes.len);
        expected = s.at;
        if (what != SPOOL_FOUND_RECORD)
            continue;
        struct sv record = sv_sub(bytes, at, info.bytes);
        assert(s.at == at + info.bytes && spool_record_is_whole(record, &again));
        check_whole(record, &info);
    }
    assert(expected == bytes.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct sv bytes = {(const char *)data + 1, size - 1};
    if (data[0] != 'S' || bytes.len < SPOOL_HEADER_BYTES || bytes.len > SPOOL_RECORD_BYTES_MAX) {
        scan(bytes);
        return 0;
    }
    char *record = malloc(bytes.len);
    if (!record)
        return 0;
    memcpy(record, bytes.ptr, bytes.len);
    memcpy(record, "PGSR\1\0\x58", 8);
    uint32_t rest = (uint32_t)(bytes.len - SPOOL_HEADER_BYTES);
    for (size_t i = 0; i < 4; i++)
        record[24 + i] = (char)(rest >> 8 * i);
    spool_record_seal(record, bytes.len, data[0]);
    scan((struct sv){record, bytes.len});
    free(record);
    return 0;
}
