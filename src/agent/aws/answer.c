// SPDX-License-Identifier: Apache-2.0
#include "agent/aws/answer.h"

#include <errno.h>
#include <time.h>

#include "base/limits.h"
#include "base/num.h"
#include "codec/json.h"
#include "codec/xml.h"

DEFINE_CLEANUP(struct json_document *, json_document_free);
DEFINE_CLEANUP(struct xml_document *, xml_document_free);

// --- Times ---

static bool take_number(struct sv *s, size_t digits, uint64_t min, uint64_t max, int *out)
{
    uint64_t n;
    if (s->len < digits || num_parse_u64(sv_sub(*s, 0, digits), min, max, &n) < 0)
        return false;
    *s = sv_sub(*s, digits, s->len);
    *out = (int)n;
    return true;
}

static bool take_char(struct sv *s, const char *set)
{
    if (s->len == 0 || !s->ptr[0] || !strchr(set, s->ptr[0]))
        return false;
    *s = sv_sub(*s, 1, s->len);
    return true;
}

// "Z", "+01:00", "-0130"; nothing may follow.
static bool take_offset(struct sv s, int *out_s)
{
    int hours, minutes;
    if (sv_equals_nocase(s, SV("Z"))) {
        *out_s = 0;
        return true;
    }
    bool minus = s.len > 0 && s.ptr[0] == '-';
    if (!take_char(&s, "+-") || !take_number(&s, 2, 0, 23, &hours))
        return false;
    (void)take_char(&s, ":");
    if (!take_number(&s, 2, 0, 59, &minutes) || s.len > 0)
        return false;
    *out_s = (hours * 60 + minutes) * 60 * (minus ? -1 : 1);
    return true;
}

int aws_time_parse(struct sv s, int64_t *out_s)
{
    struct tm t = {0};
    int year, month, offset;
    bool ok = take_number(&s, 4, 1970, 9999, &year) && take_char(&s, "-") &&
              take_number(&s, 2, 1, 12, &month) && take_char(&s, "-") &&
              take_number(&s, 2, 1, 31, &t.tm_mday) && take_char(&s, "Tt ") &&
              take_number(&s, 2, 0, 23, &t.tm_hour) && take_char(&s, ":") &&
              take_number(&s, 2, 0, 59, &t.tm_min) && take_char(&s, ":") &&
              take_number(&s, 2, 0, 60, &t.tm_sec);
    if (ok && take_char(&s, "."))
        while (take_char(&s, "0123456789"))
            ;
    if (!ok || !take_offset(s, &offset))
        return -EINVAL;
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    *out_s = (int64_t)timegm(&t) - offset;
    return 0;
}

// --- Keys ---

static int keys_of(struct sv access, struct sv secret, struct sv token, struct sv expiration,
                   struct aws_key_set *out, struct error *err)
{
    int64_t expires_s = 0;
    if (expiration.len > 0 && aws_time_parse(expiration, &expires_s) < 0)
        return error_set(err, -EPROTO, "the answer's Expiration is not a time");
    int r = aws_key_set_init(out, access, secret, token, err);
    if (r == -EINVAL)
        return err ? (err->code = -EPROTO) : -EPROTO;
    if (r == 0)
        out->expires_s = expires_s;
    return r;
}

// The parser's own words could show a piece of the answer.
static int bad_answer(int r, const char *what, struct error *err)
{
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    return error_set(err, -EPROTO, "the answer is not %s", what);
}

static struct sv text_of(const struct json_node *object, const char *key)
{
    const struct json_node *n = json_find(object, key);
    return n && n->kind == JSON_STRING ? n->string : SV("");
}

int aws_answer_container(struct sv body, struct aws_key_set *out, struct error *err)
{
    cleanup(json_document_freep) struct json_document *d = NULL;
    int r = body.len > LIMIT_AWS_ANSWER_BYTES ? -EFBIG : json_parse(body, "", &d, NULL);
    if (r < 0)
        return bad_answer(r, "JSON", err);
    const struct json_node *root = json_root(d);
    struct sv code = text_of(root, "Code");
    if (code.len > 0 && !sv_equals(code, SV("Success")))
        return error_set(err, -EPROTO, "the answer's Code is not Success");
    return keys_of(text_of(root, "AccessKeyId"), text_of(root, "SecretAccessKey"),
                   text_of(root, "Token"), text_of(root, "Expiration"), out, err);
}

static int parse_xml(struct sv body, struct xml_document **out, struct error *err)
{
    int r = body.len > LIMIT_AWS_ANSWER_BYTES ? -EFBIG : xml_parse(body, out, NULL);
    return r < 0 ? bad_answer(r, "XML", err) : 0;
}

// "AssumeRoleResponse" has an "AssumeRoleResult".
static const struct xml_node *result_of(const struct xml_node *root)
{
    for (const struct xml_node *n = root->first; n; n = n->next)
        if (sv_ends_with(n->name, SV("Result")))
            return n;
    return NULL;
}

int aws_answer_sts(struct sv body, struct aws_key_set *out, struct error *err)
{
    cleanup(xml_document_freep) struct xml_document *d = NULL;
    int r = parse_xml(body, &d, err);
    if (r < 0)
        return r;
    const struct xml_node *c = xml_find(result_of(xml_root(d)), "Credentials");
    if (!c)
        return error_set(err, -EPROTO, "the answer has no Credentials");
    return keys_of(xml_text(c, "AccessKeyId"), xml_text(c, "SecretAccessKey"),
                   xml_text(c, "SessionToken"), xml_text(c, "Expiration"), out, err);
}

// --- Faults ---

static void copy_shown(char *out, size_t out_bytes, struct sv text)
{
    sv_copy(out, out_bytes, sv_cut(text, out_bytes - 1));
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
}

static bool fault_of_xml(struct sv body, struct aws_fault *out)
{
    cleanup(xml_document_freep) struct xml_document *d = NULL;
    if (parse_xml(body, &d, NULL) < 0)
        return false;
    const struct xml_node *root = xml_root(d);
    const struct xml_node *e = xml_find(root, "Error");
    if (!e)
        e = xml_find(xml_find(root, "Errors"), "Error");
    copy_shown(out->code, sizeof(out->code), xml_text(e, "Code"));
    copy_shown(out->message, sizeof(out->message), xml_text(e, "Message"));
    return true;
}

static void fault_of_json(struct sv body, struct aws_fault *out)
{
    cleanup(json_document_freep) struct json_document *d = NULL;
    if (body.len > LIMIT_AWS_ANSWER_BYTES || json_parse(body, "", &d, NULL) < 0)
        return;
    const struct json_node *root = json_root(d);
    struct sv code = text_of(root, "code");
    struct sv message = text_of(root, "message");
    copy_shown(out->code, sizeof(out->code), code.len > 0 ? code : text_of(root, "Code"));
    copy_shown(out->message, sizeof(out->message),
               message.len > 0 ? message : text_of(root, "Message"));
}

void aws_answer_fault(struct sv body, struct aws_fault *out)
{
    *out = (struct aws_fault){0};
    if (!fault_of_xml(body, out))
        fault_of_json(body, out);
}

// --- Others ---

int aws_answer_tags(struct sv body, void (*tag)(void *user, struct sv key, struct sv value),
                    void *user, struct buf *next_token, struct error *err)
{
    cleanup(xml_document_freep) struct xml_document *d = NULL;
    int r = parse_xml(body, &d, err);
    if (r < 0)
        return r;
    const struct xml_node *set = xml_find(xml_root(d), "tagSet");
    if (!set)
        return error_set(err, -EPROTO, "the answer has no tagSet");
    for (const struct xml_node *n = set->first; n; n = n->next)
        tag(user, xml_text(n, "key"), xml_text(n, "value"));
    buf_add_sv(next_token, xml_text(xml_root(d), "nextToken"));
    return next_token->error == -EFBIG
               ? error_set(err, -EPROTO, "the answer's nextToken is too long")
               : next_token->error;
}

// The field of an ARN: arn:partition:service:region:account:resource.
static struct sv arn_field(struct sv arn, unsigned index)
{
    struct sv field = SV("");
    for (unsigned i = 0; i <= index; i++)
        if (!sv_next(&arn, ':', &field))
            return SV("");
    return field;
}

int aws_answer_task(struct sv body, struct buf *cluster, struct buf *region, struct error *err)
{
    cleanup(json_document_freep) struct json_document *d = NULL;
    int r = body.len > LIMIT_AWS_ANSWER_BYTES ? -EFBIG : json_parse(body, "", &d, NULL);
    if (r < 0)
        return bad_answer(r, "JSON", err);
    struct sv name = text_of(json_root(d), "Cluster");
    if (sv_starts_with(name, SV("arn:"))) {
        size_t slash = sv_find_char(name, '/');
        name = slash == (size_t)-1 ? SV("") : sv_sub(name, slash + 1, name.len);
    }
    buf_add_sv(cluster, name);
    buf_add_sv(region, arn_field(text_of(json_root(d), "TaskARN"), 3));
    if (cluster->error == -ENOMEM || region->error == -ENOMEM)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}
