// SPDX-License-Identifier: Apache-2.0
// How it works: the header's checksum covers the payload's, so one chain vouches for all but the
// acknowledgement. That one is a value which no single wrong bit turns 0 into: a record whose
// acknowledgement is neither is taken as waiting, since sending twice is better than losing.
// Invariant: whatever the bytes, what is told as whole obeys every limit of PutLogEvents.
#include "agent/spool_record.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "codec/hash.h"

#define VERSION 1u

static const char magic[4] = {'P', 'G', 'S', 'R'};

static void put16(char *at, uint16_t v)
{
    v = htole16(v);
    memcpy(at, &v, sizeof(v));
}

static void put32(char *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static void put64(char *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static uint16_t get16(const char *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof(v));
    return le16toh(v);
}

static uint32_t get32(const char *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static uint64_t get64(const char *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

static uint64_t header_check(const char *header)
{
    char covered[SPOOL_CHECK_OFFSET - 8];
    memcpy(covered, header, 8);
    memcpy(covered + 8, header + 16, sizeof(covered) - 8);
    return hash_128((struct sv){covered, sizeof(covered)}, 0).low;
}

// --- Writing ---

void spool_record_begin(struct buf *out, struct sv group, struct sv stream)
{
    char header[SPOOL_HEADER_BYTES] = {0};
    assert(group.len <= SPOOL_NAME_BYTES_MAX && stream.len <= SPOOL_NAME_BYTES_MAX);
    memcpy(header, magic, sizeof(magic));
    put16(header + 4, VERSION);
    put16(header + 6, SPOOL_HEADER_BYTES);
    put16(header + 56, (uint16_t)group.len);
    put16(header + 58, (uint16_t)stream.len);
    buf_add(out, header, sizeof(header));
    buf_add_sv(out, group);
    buf_add_sv(out, stream);
}

void spool_record_add(struct buf *out, int64_t timestamp_ms, uint32_t samples, struct sv message)
{
    char head[SPOOL_EVENT_BYTES];
    if (buf_reserve(out, sizeof(head) + message.len) < 0)
        return; // never half of one
    put64(head, (uint64_t)timestamp_ms);
    put32(head + 8, samples);
    put32(head + 12, (uint32_t)message.len);
    buf_add(out, head, sizeof(head));
    buf_add_sv(out, message);
}

void spool_record_finish(char *record, size_t bytes, const struct spool_info *info)
{
    put32(record + 24, (uint32_t)(bytes - SPOOL_HEADER_BYTES));
    put32(record + 28, info->events);
    put64(record + 32, info->samples);
    put64(record + 40, (uint64_t)info->first_ms);
    put64(record + 48, (uint64_t)info->last_ms);
}

void spool_record_seal(char *record, size_t bytes, uint64_t sequence)
{
    struct sv payload = {record + SPOOL_HEADER_BYTES, bytes - SPOOL_HEADER_BYTES};
    put64(record + SPOOL_ACK_OFFSET, 0);
    put64(record + 16, sequence);
    struct hash128 h = hash_128(payload, sequence);
    put64(record + 64, h.low);
    put64(record + 72, h.high);
    put64(record + SPOOL_CHECK_OFFSET, header_check(record));
}

void spool_record_acknowledgement(const char check[8], char out[8])
{
    put64(out, ~get64(check));
}

// --- Reading ---

struct sv spool_record_events(struct sv record)
{
    size_t names = (size_t)get16(record.ptr + 56) + get16(record.ptr + 58);
    return sv_sub(record, SPOOL_HEADER_BYTES + names, record.len);
}

bool spool_event_next(struct sv *events, struct spool_event *out)
{
    if (events->len < SPOOL_EVENT_BYTES)
        return false;
    uint32_t bytes = get32(events->ptr + 12);
    if (bytes > events->len - SPOOL_EVENT_BYTES)
        return false;
    *out = (struct spool_event){
        .timestamp_ms = (int64_t)get64(events->ptr),
        .samples = get32(events->ptr + 8),
        .message = {events->ptr + SPOOL_EVENT_BYTES, bytes},
    };
    *events = sv_sub(*events, SPOOL_EVENT_BYTES + bytes, events->len);
    return true;
}

void spool_record_names(struct sv record, struct sv *group, struct sv *stream)
{
    size_t group_bytes = get16(record.ptr + 56);
    *group = sv_sub(record, SPOOL_HEADER_BYTES, group_bytes);
    *stream = sv_sub(record, SPOOL_HEADER_BYTES + group_bytes, get16(record.ptr + 58));
}

static bool read_header(struct sv bytes, struct spool_info *out)
{
    const char *p = bytes.ptr;
    if (bytes.len < SPOOL_HEADER_BYTES || memcmp(p, magic, sizeof(magic)) != 0 ||
        get64(p + SPOOL_CHECK_OFFSET) != header_check(p))
        return false;
    uint32_t payload_bytes = get32(p + 24);
    if (payload_bytes > SPOOL_RECORD_BYTES_MAX - SPOOL_HEADER_BYTES)
        return false;
    *out = (struct spool_info){
        .sequence = get64(p + 16),
        .bytes = SPOOL_HEADER_BYTES + payload_bytes,
        .events = get32(p + 28),
        .samples = get64(p + 32),
        .first_ms = (int64_t)get64(p + 40),
        .last_ms = (int64_t)get64(p + 48),
        .is_acknowledged = get64(p + SPOOL_ACK_OFFSET) == ~get64(p + SPOOL_CHECK_OFFSET),
    };
    return true;
}

// What a header may claim, so that its numbers can be counted when the rest is lost.
static bool header_is_sane(const struct spool_info *i)
{
    return i->sequence < UINT64_C(1) << 62 && i->events > 0 && i->events <= LOGS_BATCH_EVENTS_MAX &&
           i->samples <= (uint64_t)i->events * UINT32_MAX && i->first_ms >= 0 &&
           i->last_ms >= i->first_ms && i->last_ms - i->first_ms <= LOGS_BATCH_SPAN_MS;
}

static bool version_is_known(const char *header)
{
    return get16(header + 4) == VERSION && get16(header + 6) == SPOOL_HEADER_BYTES;
}

static bool events_are_whole(struct sv events, const struct spool_info *info)
{
    struct spool_event e;
    uint64_t count = 0, samples = 0, bytes = 0;
    int64_t last_ms = info->first_ms;
    for (; spool_event_next(&events, &e); count++) {
        if (!e.message.len || e.message.len > LOGS_EVENT_BYTES_MAX - LOGS_EVENT_OVERHEAD ||
            e.timestamp_ms < last_ms || (count == 0 && e.timestamp_ms != info->first_ms))
            return false;
        last_ms = e.timestamp_ms;
        samples += e.samples;
        bytes += e.message.len + LOGS_EVENT_OVERHEAD;
    }
    return events.len == 0 && count == info->events && samples == info->samples &&
           last_ms == info->last_ms && bytes <= LOGS_BATCH_BYTES_MAX;
}

static bool payload_is_whole(struct sv record, struct spool_info *info)
{
    const char *p = record.ptr;
    struct sv payload = sv_sub(record, SPOOL_HEADER_BYTES, record.len);
    size_t group_bytes = get16(p + 56), stream_bytes = get16(p + 58);
    struct hash128 h = hash_128(payload, info->sequence);
    if (get64(p + 64) != h.low || get64(p + 72) != h.high || group_bytes > SPOOL_NAME_BYTES_MAX ||
        stream_bytes > SPOOL_NAME_BYTES_MAX || group_bytes + stream_bytes > payload.len ||
        !events_are_whole(sv_sub(payload, group_bytes + stream_bytes, payload.len), info))
        return false;
    spool_record_names(record, &info->group, &info->stream);
    return true;
}

bool spool_record_is_whole(struct sv record, struct spool_info *out)
{
    struct spool_info info;
    if (!read_header(record, &info) || !version_is_known(record.ptr) || !header_is_sane(&info) ||
        info.bytes != record.len || !payload_is_whole(record, &info))
        return false;
    *out = info;
    return true;
}

// Where the next header that is whole begins; bytes.len when there is none.
static size_t find_header(struct sv bytes, size_t from)
{
    struct spool_info ignored;
    while (from < bytes.len) {
        size_t found = sv_find(sv_sub(bytes, from, bytes.len), (struct sv){magic, sizeof(magic)});
        if (found == (size_t)-1)
            return bytes.len;
        from += found;
        if (read_header(sv_sub(bytes, from, bytes.len), &ignored))
            return from;
        from++;
    }
    return bytes.len;
}

enum spool_found spool_scan_next(struct spool_scan *s, size_t *out_at, struct spool_info *out)
{
    *out = (struct spool_info){0};
    *out_at = s->at;
    if (s->at >= s->bytes.len)
        return SPOOL_FOUND_END;
    struct sv rest = sv_sub(s->bytes, s->at, s->bytes.len);
    struct spool_info info;
    if (!read_header(rest, &info)) {
        s->at = find_header(s->bytes, s->at + 1);
        return s->at == s->bytes.len ? SPOOL_FOUND_TORN : SPOOL_FOUND_DAMAGED;
    }
    if (!version_is_known(rest.ptr)) {
        s->at = s->bytes.len;
        return SPOOL_FOUND_NEWER;
    }
    bool is_sane = header_is_sane(&info);
    if (is_sane)
        *out = info;
    if (info.bytes > rest.len) {
        s->at = s->bytes.len;
        return SPOOL_FOUND_TORN;
    }
    s->at += info.bytes;
    if (is_sane && payload_is_whole(sv_sub(rest, 0, info.bytes), out))
        return SPOOL_FOUND_RECORD;
    return SPOOL_FOUND_CORRUPT;
}
