// SPDX-License-Identifier: Apache-2.0
// Input: "status events", the header x-amzn-ErrorType and the body of an answer, a line each but
// the body. Whatever it is, the answer has a known fault, one printable line of text exactly when
// it is a fault, and no more rejected events than were sent. The body is read as an endpoint and as
// names, too.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/logs_wire.h"
#include "base/num.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number(struct sv text)
{
    uint64_t n = 0;
    return num_parse_u64(text, 0, 10000, &n) == 0 ? n : 0;
}

static void check(const struct logs_answer *a, size_t events)
{
    size_t length = strnlen(a->text, sizeof(a->text));
    assert(length < sizeof(a->text) && sv_is_utf8(sv_from(a->text)));
    assert((length > 0) == (a->fault != LOGS_FAULT_NONE));
    for (size_t i = 0; i < length; i++)
        assert((unsigned char)a->text[i] >= 0x20 && a->text[i] != 0x7f);
    assert(a->rejected_old <= events && a->rejected_new <= events - a->rejected_old);
    enum logs_outcome outcome = logs_outcome_of(a->fault, events);
    assert(outcome <= LOGS_CREDENTIALS);
    assert(outcome == LOGS_DELIVERED || a->rejected_old + a->rejected_new == 0);
}

static void read_texts(struct sv text)
{
    struct buf url = BUF_INIT(1u << 20);
    struct error err = ERROR_INIT;
    int r = logs_read_endpoint(text, &url, &err);
    assert(r == 0 ? url.len > strlen("http://") : r == -EINVAL && url.len == 0 && err.text[0]);
    buf_deinit(&url);
    r = logs_check_names(text, text, &err);
    assert(r == 0 || r == -EINVAL);
    assert(!logs_is_insights_group(text) || sv_starts_with(text, SV("/aws/")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv body = {(const char *)data, size}, status, events, type;
    struct logs_answer answer;
    (void)sv_next(&body, '\n', &events);
    (void)sv_next(&events, ' ', &status);
    (void)sv_next(&body, '\n', &type);
    const struct logs_reply reply = {"PutLogEvents", (unsigned)number(status), type, body,
                                     number(events)};
    memset(&answer, 0xa5, sizeof(answer));
    logs_answer_read(&reply, &answer);
    check(&answer, reply.events);
    read_texts(body);
    return 0;
}
