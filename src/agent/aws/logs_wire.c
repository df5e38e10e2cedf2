// SPDX-License-Identifier: Apache-2.0
#include "agent/aws/logs_wire.h"

#include <errno.h>
#include <stdio.h>

#include "base/num.h"
#include "codec/json.h"

#define NAME_MAX_CHARACTERS 512

// --- Errors ---

// The service's own errors, the common ones of AWS, and what AWS' SDKs take for throttling, a wrong
// clock or wrong keys. Any other code means: later, for what is not understood must not be lost.
static const struct {
    const char *code;
    enum logs_fault fault;
} codes[] = {
    {"ResourceNotFoundException", LOGS_FAULT_NOT_FOUND},
    {"ResourceAlreadyExistsException", LOGS_FAULT_EXISTS},
    {"DataAlreadyAcceptedException", LOGS_FAULT_NONE},
    {"InvalidParameterException", LOGS_FAULT_INVALID},
    {"InvalidParameterValue", LOGS_FAULT_INVALID},
    {"InvalidParameterCombination", LOGS_FAULT_INVALID},
    {"ValidationException", LOGS_FAULT_INVALID},
    {"ValidationError", LOGS_FAULT_INVALID},
    {"SerializationException", LOGS_FAULT_UNREADABLE},
    {"RequestEntityTooLarge", LOGS_FAULT_TOO_LARGE},
    {"RequestEntityTooLargeException", LOGS_FAULT_TOO_LARGE},
    {"RequestTooLargeException", LOGS_FAULT_TOO_LARGE},
    {"ThrottlingException", LOGS_FAULT_THROTTLED},
    {"Throttling", LOGS_FAULT_THROTTLED},
    {"ThrottledException", LOGS_FAULT_THROTTLED},
    {"RequestThrottled", LOGS_FAULT_THROTTLED},
    {"RequestThrottledException", LOGS_FAULT_THROTTLED},
    {"TooManyRequestsException", LOGS_FAULT_THROTTLED},
    {"RequestLimitExceeded", LOGS_FAULT_THROTTLED},
    {"BandwidthLimitExceeded", LOGS_FAULT_THROTTLED},
    {"SlowDown", LOGS_FAULT_THROTTLED},
    {"RequestExpired", LOGS_FAULT_CLOCK},
    {"RequestTimeTooSkewed", LOGS_FAULT_CLOCK},
    {"RequestInTheFuture", LOGS_FAULT_CLOCK},
    {"InvalidSignatureException", LOGS_FAULT_SIGNATURE},
    {"SignatureDoesNotMatch", LOGS_FAULT_SIGNATURE},
    {"AuthFailure", LOGS_FAULT_SIGNATURE},
    {"IncompleteSignature", LOGS_FAULT_CREDENTIALS},
    {"IncompleteSignatureException", LOGS_FAULT_CREDENTIALS},
    {"UnrecognizedClientException", LOGS_FAULT_CREDENTIALS},
    {"ExpiredTokenException", LOGS_FAULT_CREDENTIALS},
    {"ExpiredToken", LOGS_FAULT_CREDENTIALS},
    {"AccessDeniedException", LOGS_FAULT_CREDENTIALS},
    {"AccessDenied", LOGS_FAULT_CREDENTIALS},
    {"MissingAuthenticationToken", LOGS_FAULT_CREDENTIALS},
    {"MissingAuthenticationTokenException", LOGS_FAULT_CREDENTIALS},
    {"InvalidClientTokenId", LOGS_FAULT_CREDENTIALS},
    {"InvalidAccessKeyId", LOGS_FAULT_CREDENTIALS},
    {"InvalidAccessKeyIdException", LOGS_FAULT_CREDENTIALS},
    {"NotAuthorized", LOGS_FAULT_CREDENTIALS},
    {"OptInRequired", LOGS_FAULT_CREDENTIALS},
};

static enum logs_fault fault_of(struct sv code, unsigned status)
{
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (sv_equals(code, sv_from(codes[i].code)))
            return codes[i].fault;
    switch (status) {
    case 401:
    case 403:
        return LOGS_FAULT_CREDENTIALS;
    case 413:
        return LOGS_FAULT_TOO_LARGE;
    case 415:
        return LOGS_FAULT_UNREADABLE;
    case 429:
        return LOGS_FAULT_THROTTLED;
    default:
        return LOGS_FAULT_SERVICE;
    }
}

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// "prefix#Code:url", the prefix and the URL may be absent; the URL may have a '#' of its own.
static struct sv bare_code(struct sv type)
{
    size_t colon = sv_find_char(type, ':'), end = 0;
    type = sv_sub(type, 0, colon == (size_t)-1 ? type.len : colon);
    size_t hash = sv_find_char(type, '#');
    if (hash != (size_t)-1)
        type = sv_sub(type, hash + 1, type.len);
    type = sv_trim(type, " \t");
    while (end < type.len && (is_alphanumeric(type.ptr[end]) || type.ptr[end] == '.' ||
                              type.ptr[end] == '_' || type.ptr[end] == '-'))
        end++;
    return sv_sub(type, 0, end);
}

static struct sv text_member(const struct json_node *object, const char *key)
{
    const struct json_node *n = object ? json_find(object, key) : NULL;
    return n && n->kind == JSON_STRING ? n->string : SV("");
}

static struct sv first_member(const struct json_node *object, const char *const *keys)
{
    struct sv found = SV("");
    for (; *keys && found.len == 0; keys++)
        found = text_member(object, *keys);
    return found;
}

// The first line only: below it some services repeat the request with its session token.
static struct sv first_line(struct sv text)
{
    size_t end = 0;
    while (end < text.len && text.ptr[end] != '\n' && text.ptr[end] != '\r')
        end++;
    return sv_trim(sv_cut(sv_sub(text, 0, end), LOGS_TEXT_BYTES / 2), " \t");
}

static void blank_controls(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

static void describe(const struct logs_reply *reply, struct sv code, struct sv message,
                     struct logs_answer *out)
{
    message = first_line(message);
    code = sv_cut(code, 128);
    if (code.len == 0 && message.len == 0)
        message = SV("not an answer of CloudWatch Logs");
    (void)snprintf(out->text, sizeof(out->text), "%s: %.*s%s%.*s (HTTP %u)", reply->operation,
                   SV_FMT(code), code.len && message.len ? ": " : "", SV_FMT(message),
                   reply->status);
    blank_controls(out->text);
}

static void read_error(const struct logs_reply *reply, const struct json_node *root,
                       struct logs_answer *out)
{
    static const char *const type_keys[] = {"__type", "code", NULL};
    static const char *const message_keys[] = {"message", "Message", "errorMessage", NULL};
    struct sv code = bare_code(reply->error_type);
    if (code.len == 0)
        code = bare_code(first_member(root, type_keys));
    out->fault = fault_of(code, reply->status);
    if (out->fault != LOGS_FAULT_NONE)
        describe(reply, code, first_member(root, message_keys), out);
}

// --- Success ---

// An index of a member, at most count; false when there is none.
static bool index_member(const struct json_node *info, const char *key, size_t count, size_t *out)
{
    const struct json_node *n = json_find(info, key);
    if (!n || n->kind != JSON_INTEGER || n->integer < 0)
        return false;
    *out = (uint64_t)n->integer < count ? (size_t)n->integer : count;
    return true;
}

// Too old and expired events are at the start of a batch, up to and without the index; too new ones
// at its end, from the index on.
static void read_rejected(const struct json_node *root, size_t count, struct logs_answer *out)
{
    const struct json_node *info = json_find(root, "rejectedLogEventsInfo");
    size_t old = 0, expired = 0, fresh = count;
    if (!info || info->kind != JSON_OBJECT)
        return;
    (void)index_member(info, "tooOldLogEventEndIndex", count, &old);
    (void)index_member(info, "expiredLogEventEndIndex", count, &expired);
    (void)index_member(info, "tooNewLogEventStartIndex", count, &fresh);
    out->rejected_old = old > expired ? old : expired;
    out->rejected_new = count - (fresh > out->rejected_old ? fresh : out->rejected_old);
}

// Nothing, or an object: a page that a gateway answers with 200 is neither.
static bool is_services(struct sv body)
{
    struct sv text = sv_trim(body, " \t\r\n");
    return text.len == 0 || text.ptr[0] == '{';
}

void logs_answer_read(const struct logs_reply *reply, struct logs_answer *out)
{
    struct json_document *document = NULL;
    const struct json_node *root = NULL;
    *out = (struct logs_answer){0};
    if (reply->body.len && json_parse(reply->body, "answer", &document, NULL) == 0)
        root = json_root(document);
    if (root && root->kind != JSON_OBJECT)
        root = NULL;
    if (reply->status != 200) {
        read_error(reply, root, out);
    } else if (!is_services(reply->body)) {
        out->fault = LOGS_FAULT_SERVICE;
        describe(reply, SV(""), SV(""), out);
    } else if (root) {
        read_rejected(root, reply->events, out);
    }
    json_document_free(document);
}

void logs_answer_set(struct logs_answer *out, enum logs_fault fault, const char *operation,
                     const char *text)
{
    *out = (struct logs_answer){.fault = fault};
    (void)snprintf(out->text, sizeof(out->text), "%s: %s", operation, text);
    blank_controls(out->text);
}

enum logs_outcome logs_outcome_of(enum logs_fault fault, size_t events)
{
    switch (fault) {
    case LOGS_FAULT_NONE:
    case LOGS_FAULT_EXISTS:
        return LOGS_DELIVERED;
    case LOGS_FAULT_NOT_FOUND:
    case LOGS_FAULT_SERVICE:
        return LOGS_RETRY;
    case LOGS_FAULT_THROTTLED:
        return LOGS_THROTTLED;
    case LOGS_FAULT_INVALID:
    case LOGS_FAULT_TOO_LARGE:
    case LOGS_FAULT_UNREADABLE:
        return events > 1 ? LOGS_SPLIT : LOGS_REFUSED;
    case LOGS_FAULT_CLOCK:
    case LOGS_FAULT_SIGNATURE:
    case LOGS_FAULT_CREDENTIALS:
        return LOGS_CREDENTIALS;
    case LOGS_FAULT_NAME:
        return LOGS_REFUSED;
    }
    return LOGS_RETRY;
}

// --- Names and addresses ---

static bool has_only(struct sv text, const char *others)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_alphanumeric(text.ptr[i]) && (!text.ptr[i] || !strchr(others, text.ptr[i])))
            return false;
    return true;
}

static size_t characters(struct sv text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return count;
}

int logs_check_names(struct sv group, struct sv stream, struct error *err)
{
    if (group.len == 0 || group.len > NAME_MAX_CHARACTERS)
        return error_set(err, -EINVAL, "log group name has %zu characters, not 1 to %d", group.len,
                         NAME_MAX_CHARACTERS);
    if (!has_only(group, "_/.#-"))
        return error_set(err, -EINVAL,
                         "log group name '%.*s' has other characters than letters, digits and "
                         "_ / . # -",
                         SV_FMT(sv_cut(group, 256)));
    size_t count = characters(stream);
    if (count == 0 || count > NAME_MAX_CHARACTERS)
        return error_set(err, -EINVAL, "log stream name has %zu characters, not 1 to %d", count,
                         NAME_MAX_CHARACTERS);
    if (sv_find_char(stream, ':') != (size_t)-1 || sv_find_char(stream, '*') != (size_t)-1)
        return error_set(err, -EINVAL, "log stream name '%.*s' has ':' or '*' in it",
                         SV_FMT(sv_cut(stream, 256)));
    if (!sv_is_utf8(stream))
        return error_set(err, -EINVAL, "log stream name is not UTF-8");
    return 0;
}

// As the CloudWatch agent has it: ^/aws/.*containerinsights/.*/(performance|prometheus)$
bool logs_is_insights_group(struct sv group)
{
    struct sv prefix = SV("/aws/"), middle = SV("containerinsights/");
    size_t slash = group.len;
    while (slash && group.ptr[slash - 1] != '/')
        slash--;
    struct sv last = sv_sub(group, slash, group.len);
    if (!sv_starts_with(group, prefix) ||
        (!sv_equals(last, SV("performance")) && !sv_equals(last, SV("prometheus"))))
        return false;
    size_t at = sv_find(sv_sub(group, prefix.len, group.len), middle);
    return at != (size_t)-1 && prefix.len + at + middle.len < slash;
}

static bool is_ipv6(struct sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (num_hex_digit(text.ptr[i]) < 0 && text.ptr[i] != ':' && text.ptr[i] != '.')
            return false;
    return text.len > 0;
}

// "name", "name:port", "[address]" or "[address]:port".
static int check_host(struct sv host, struct error *err)
{
    bool is_bracketed = host.ptr[0] == '[';
    size_t end = sv_find_char(host, is_bracketed ? ']' : ':');
    struct sv name =
        sv_sub(host, is_bracketed, (end == (size_t)-1 ? host.len : end) - is_bracketed);
    struct sv rest = sv_sub(host, is_bracketed && end != (size_t)-1 ? end + 1 : end, host.len);
    uint64_t port;
    if (is_bracketed ? end == (size_t)-1 || !is_ipv6(name) : !name.len || !has_only(name, ".-_"))
        return error_set(err, -EINVAL, "'%.*s' is not a host", SV_FMT(sv_cut(host, 256)));
    if (rest.len &&
        (rest.ptr[0] != ':' || num_parse_u64(sv_sub(rest, 1, rest.len), 1, UINT16_MAX, &port) < 0))
        return error_set(err, -EINVAL, "port 1 to 65535 expected, not '%.*s'",
                         SV_FMT(sv_cut(rest, 256)));
    return 0;
}

int logs_read_endpoint(struct sv text, struct buf *out, struct error *err)
{
    size_t end = sv_find(text, SV("://"));
    bool has_scheme = end != (size_t)-1;
    struct sv scheme = has_scheme ? sv_sub(text, 0, end) : SV("https");
    struct sv host = has_scheme ? sv_sub(text, end + 3, text.len) : text;
    if (!sv_equals_nocase(scheme, SV("https")) && !sv_equals_nocase(scheme, SV("http")))
        return error_set(err, -EINVAL, "endpoint '%.*s' is neither http nor https",
                         SV_FMT(sv_cut(text, 256)));
    if (sv_ends_with(host, SV("/")))
        host = sv_sub(host, 0, host.len - 1);
    if (host.len == 0)
        return error_set(err, -EINVAL, "endpoint '%.*s' names no host", SV_FMT(sv_cut(text, 256)));
    for (size_t i = 0; i < host.len; i++)
        if (host.ptr[i] == '/' || host.ptr[i] == '?' || host.ptr[i] == '#' || host.ptr[i] == '@')
            return error_set(err, -EINVAL,
                             "endpoint '%.*s' has more than a scheme, a host and a port",
                             SV_FMT(sv_cut(text, 256)));
    int r = check_host(host, err);
    if (r < 0)
        return r;
    buf_add_str(out, scheme.len == 5 ? "https://" : "http://");
    buf_add_sv(out, host);
    return 0;
}

// --- Requests ---

static void write_member(struct buf *out, const char *key, struct sv value)
{
    buf_add_str(out, key);
    json_add_string(out, value);
}

void logs_write_events(struct buf *out, const struct logs_batch *batch)
{
    buf_add_str(out, "{\"logEvents\":[");
    for (size_t i = 0; i < batch->count; i++) {
        write_member(out, i ? ",{\"message\":" : "{\"message\":", batch->events[i].message);
        buf_add_str(out, ",\"timestamp\":");
        buf_add_i64(out, batch->events[i].timestamp_ms);
        buf_add_char(out, '}');
    }
    write_member(out, "],\"logGroupName\":", batch->group);
    write_member(out, ",\"logStreamName\":", batch->stream);
    buf_add_char(out, '}');
}

void logs_write_group(struct buf *out, struct sv group)
{
    write_member(out, "{\"logGroupName\":", group);
    buf_add_char(out, '}');
}

void logs_write_stream(struct buf *out, struct sv group, struct sv stream)
{
    write_member(out, "{\"logGroupName\":", group);
    write_member(out, ",\"logStreamName\":", stream);
    buf_add_char(out, '}');
}

void logs_write_retention(struct buf *out, struct sv group, unsigned days)
{
    write_member(out, "{\"logGroupName\":", group);
    buf_add_str(out, ",\"retentionInDays\":");
    buf_add_u64(out, days);
    buf_add_char(out, '}');
}
