// SPDX-License-Identifier: Apache-2.0
// An answer of any service, read as each kind: keys are whole and fit for a header, faults are
// printable, times and URLs are judged.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/aws/answer.h"
#include "agent/aws/container_url.h"

static void check_keys(int r, struct aws_key_set *k, const struct error *err)
{
    assert(r == 0 || (r == -EPROTO && err->text[0]));
    if (r < 0)
        return;
    assert(*k->access_key && *k->secret_key && k->expires_s >= 0);
    assert(aws_is_plain(sv_from(k->access_key)) && aws_is_plain(sv_from(k->secret_key)));
    assert(aws_is_plain(sv_from(k->session_token)));
    aws_key_set_deinit(k);
}

static void on_tag(void *user, struct sv key, struct sv value)
{
    size_t *bytes = user;
    *bytes += key.len + value.len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv body = {(const char *)data, size};
    struct aws_key_set keys;
    struct aws_fault fault;
    struct error err = ERROR_INIT;
    int r = aws_answer_container(body, &keys, &err);
    check_keys(r, &keys, &err);
    r = aws_answer_sts(body, &keys, &err);
    check_keys(r, &keys, &err);

    aws_answer_fault(body, &fault);
    for (const char *c = fault.message; *c; c++)
        assert((unsigned char)*c >= ' ');

    struct buf one = BUF_INIT(64), two = BUF_INIT(64);
    size_t bytes = 0;
    r = aws_answer_tags(body, on_tag, &bytes, &one, NULL);
    assert((r == 0 || r == -EPROTO) && bytes <= size);
    buf_reset(&one);
    r = aws_answer_task(body, &one, &two, NULL);
    assert(r == 0 || r == -EPROTO);
    buf_deinit(&one);
    buf_deinit(&two);

    int64_t seconds = 0;
    bool is_local = false;
    r = aws_time_parse(body, &seconds);
    assert(r == 0 || r == -EINVAL);
    r = aws_container_url_check(body, &is_local, &err);
    assert(r == 0 || r == -EINVAL);
    return 0;
}
