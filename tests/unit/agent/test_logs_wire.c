// SPDX-License-Identifier: Apache-2.0
// Sources: the CloudWatch Logs API reference (PutLogEvents, RejectedLogEventsInfo, Common Errors),
// the AWS JSON 1.1 protocol of Smithy ("Operation error serialization").
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/aws/logs_wire.h"

static struct logs_answer read_answer(unsigned status, const char *type, const char *body,
                                      size_t events)
{
    struct logs_answer a;
    struct logs_reply r = {"Op", status, sv_from(type), sv_from(body), events};
    memset(&a, 0xa5, sizeof(a));
    logs_answer_read(&r, &a);
    return a;
}

static void codes_have_their_faults(void **state)
{
    static const struct {
        const char *code;
        enum logs_fault fault;
        enum logs_outcome two, one, none; // events
    } cases[] = {
        {"ResourceNotFoundException", LOGS_FAULT_NOT_FOUND, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"ResourceAlreadyExistsException", LOGS_FAULT_EXISTS, LOGS_DELIVERED, LOGS_DELIVERED,
         LOGS_DELIVERED},
        {"InvalidParameterException", LOGS_FAULT_INVALID, LOGS_SPLIT, LOGS_REFUSED, LOGS_REFUSED},
        {"ValidationException", LOGS_FAULT_INVALID, LOGS_SPLIT, LOGS_REFUSED, LOGS_REFUSED},
        {"SerializationException", LOGS_FAULT_UNREADABLE, LOGS_SPLIT, LOGS_REFUSED, LOGS_REFUSED},
        {"RequestEntityTooLarge", LOGS_FAULT_TOO_LARGE, LOGS_SPLIT, LOGS_REFUSED, LOGS_REFUSED},
        {"OperationAbortedException", LOGS_FAULT_SERVICE, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"ServiceUnavailableException", LOGS_FAULT_SERVICE, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"LimitExceededException", LOGS_FAULT_SERVICE, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"InvalidSequenceTokenException", LOGS_FAULT_SERVICE, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"Unheard.Of_Code-1", LOGS_FAULT_SERVICE, LOGS_RETRY, LOGS_RETRY, LOGS_RETRY},
        {"ThrottlingException", LOGS_FAULT_THROTTLED, LOGS_THROTTLED, LOGS_THROTTLED,
         LOGS_THROTTLED},
        {"Throttling", LOGS_FAULT_THROTTLED, LOGS_THROTTLED, LOGS_THROTTLED, LOGS_THROTTLED},
        {"RequestTimeTooSkewed", LOGS_FAULT_CLOCK, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
        {"RequestExpired", LOGS_FAULT_CLOCK, LOGS_CREDENTIALS, LOGS_CREDENTIALS, LOGS_CREDENTIALS},
        {"InvalidSignatureException", LOGS_FAULT_SIGNATURE, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
        {"UnrecognizedClientException", LOGS_FAULT_CREDENTIALS, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
        {"ExpiredTokenException", LOGS_FAULT_CREDENTIALS, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
        {"AccessDeniedException", LOGS_FAULT_CREDENTIALS, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
        {"MissingAuthenticationToken", LOGS_FAULT_CREDENTIALS, LOGS_CREDENTIALS, LOGS_CREDENTIALS,
         LOGS_CREDENTIALS},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256], body[256], type[256];
        (void)snprintf(text, sizeof(text), "Op: %s: why (HTTP 400)", cases[i].code);
        (void)snprintf(body, sizeof(body),
                       "{\"__type\":\"com.amazonaws.logs#%s\",\"Message\":\"why\"}", cases[i].code);
        (void)snprintf(type, sizeof(type), " %s:http://internal.amazon.com/", cases[i].code);
        struct logs_answer a = read_answer(400, NULL, body, 2);
        struct logs_answer b = read_answer(400, type, "{\"message\":\"why\"}", 2);
        assert_int_equal(a.fault, cases[i].fault);
        assert_int_equal(b.fault, cases[i].fault);
        assert_string_equal(a.text, text);
        assert_string_equal(b.text, text);
        assert_int_equal(logs_outcome_of(a.fault, 2), cases[i].two);
        assert_int_equal(logs_outcome_of(a.fault, 1), cases[i].one);
        assert_int_equal(logs_outcome_of(a.fault, 0), cases[i].none);
        assert_int_equal(a.rejected_old + a.rejected_new + a.retry_after_s, 0);
    }
    assert_int_equal(logs_outcome_of(LOGS_FAULT_NAME, 2), LOGS_REFUSED);
}

static void errors_of_any_shape_are_read(void **state)
{
    static const struct {
        unsigned status;
        const char *type, *body;
        enum logs_fault fault;
        const char *text;
    } cases[] = {
        // Where a code may stand, and what surrounds it.
        {400, NULL, "{\"__type\":\"ThrottlingException\"}", LOGS_FAULT_THROTTLED,
         "Op: ThrottlingException (HTTP 400)"},
        {400, NULL, "{\"code\":\"ThrottlingException:http://x\",\"errorMessage\":\"m\"}",
         LOGS_FAULT_THROTTLED, "Op: ThrottlingException: m (HTTP 400)"},
        {400, "a#ThrottlingException:http://x#y", "{\"__type\":\"InvalidParameterException\"}",
         LOGS_FAULT_THROTTLED, "Op: ThrottlingException (HTTP 400)"},
        {400, "ThrottlingException:http://x#y", "", LOGS_FAULT_THROTTLED,
         "Op: ThrottlingException (HTTP 400)"},
        {400, "ThrottlingException", "{\"__type\":\"InvalidParameterException\"}",
         LOGS_FAULT_THROTTLED, "Op: ThrottlingException (HTTP 400)"},
        {400, "ThrottlingException\x01 and", "", LOGS_FAULT_THROTTLED,
         "Op: ThrottlingException (HTTP 400)"},
        {500, "DataAlreadyAcceptedException", "", LOGS_FAULT_NONE, ""},
        // The message: one line, nothing that controls a terminal.
        {400, "X", "{\"message\":\"first\\r\\nsecond\"}", LOGS_FAULT_SERVICE,
         "Op: X: first (HTTP 400)"},
        {400, "X", "{\"message\":\"a\\tb\\u001bc\\u007fd\"}", LOGS_FAULT_SERVICE,
         "Op: X: a b c d (HTTP 400)"},
        {400, "X", "{\"message\":7}", LOGS_FAULT_SERVICE, "Op: X (HTTP 400)"},
        {400, "", "{\"message\":\"only\"}", LOGS_FAULT_SERVICE, "Op: only (HTTP 400)"},
        // No code: the status decides.
        {400, NULL, "", LOGS_FAULT_SERVICE, "Op: not an answer of CloudWatch Logs (HTTP 400)"},
        {401, NULL, "no", LOGS_FAULT_CREDENTIALS,
         "Op: not an answer of CloudWatch Logs (HTTP 401)"},
        {403, NULL, "[]", LOGS_FAULT_CREDENTIALS,
         "Op: not an answer of CloudWatch Logs (HTTP 403)"},
        {404, NULL, "{", LOGS_FAULT_SERVICE, "Op: not an answer of CloudWatch Logs (HTTP 404)"},
        {413, NULL, "{}", LOGS_FAULT_TOO_LARGE, "Op: not an answer of CloudWatch Logs (HTTP 413)"},
        {415, NULL, "", LOGS_FAULT_UNREADABLE, "Op: not an answer of CloudWatch Logs (HTTP 415)"},
        {429, NULL, "", LOGS_FAULT_THROTTLED, "Op: not an answer of CloudWatch Logs (HTTP 429)"},
        {302, NULL, "", LOGS_FAULT_SERVICE, "Op: not an answer of CloudWatch Logs (HTTP 302)"},
        {503, NULL, "<html>", LOGS_FAULT_SERVICE,
         "Op: not an answer of CloudWatch Logs (HTTP 503)"},
        // Success, as far as it is the service's.
        {200, NULL, "", LOGS_FAULT_NONE, ""},
        {200, NULL, " \r\n{\"a\":[1,{\"b\":null}]} ", LOGS_FAULT_NONE, ""},
        {200, NULL, "{not json", LOGS_FAULT_NONE, ""},
        {200, NULL, "<html>", LOGS_FAULT_SERVICE,
         "Op: not an answer of CloudWatch Logs (HTTP 200)"},
        {200, NULL, "[]", LOGS_FAULT_SERVICE, "Op: not an answer of CloudWatch Logs (HTTP 200)"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct logs_answer a = read_answer(cases[i].status, cases[i].type, cases[i].body, 5);
        assert_string_equal(a.text, cases[i].text);
        assert_int_equal(a.fault, cases[i].fault);
        assert_int_equal(a.rejected_old + a.rejected_new, 0);
    }
}

static void long_messages_are_cut_between_characters(void **state)
{
    char body[4000] = "{\"__type\":\"";
    (void)state;
    memset(body + strlen(body), 'C', 1000);
    strncat(body, "\",\"message\":\"x", 20);
    for (size_t i = 0; i < 600; i++)
        strncat(body, "ü", 3);
    strncat(body, "\"}", 3);
    struct logs_answer a = read_answer(400, NULL, body, 1);
    // 128 of the code, and of the message 256 bytes at most: 'x' and 127 letters of two.
    assert_int_equal(strlen(a.text), strlen("Op: ") + 128 + 2 + 255 + strlen(" (HTTP 400)"));
    assert_true(sv_is_utf8(sv_from(a.text)));
    assert_string_equal(a.text + strlen(a.text) - 13, "ü (HTTP 400)");
}

static void rejected_events_are_counted_by_their_indices(void **state)
{
    static const struct {
        const char *info;
        size_t old, new;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"tooOldLogEventEndIndex\":0}", 0, 0},
        {"{\"tooOldLogEventEndIndex\":1}", 1, 0},
        {"{\"tooOldLogEventEndIndex\":9}", 9, 0},
        {"{\"tooOldLogEventEndIndex\":10}", 10, 0},
        {"{\"tooOldLogEventEndIndex\":11}", 10, 0},
        {"{\"expiredLogEventEndIndex\":4}", 4, 0},
        {"{\"expiredLogEventEndIndex\":4,\"tooOldLogEventEndIndex\":2}", 4, 0},
        {"{\"expiredLogEventEndIndex\":2,\"tooOldLogEventEndIndex\":4}", 4, 0},
        {"{\"tooNewLogEventStartIndex\":10}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":9}", 0, 1},
        {"{\"tooNewLogEventStartIndex\":0}", 0, 10},
        {"{\"tooNewLogEventStartIndex\":11}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":9223372036854775807}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":18446744073709551616}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":-1,\"tooOldLogEventEndIndex\":-9}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":1.5,\"tooOldLogEventEndIndex\":\"3\"}", 0, 0},
        {"{\"tooNewLogEventStartIndex\":null,\"tooOldLogEventEndIndex\":[3]}", 0, 0},
        {"{\"tooOldLogEventEndIndex\":3,\"tooNewLogEventStartIndex\":8}", 3, 2},
        {"{\"tooOldLogEventEndIndex\":7,\"tooNewLogEventStartIndex\":2}", 7, 3},
        {"[3]", 0, 0},
        {"null", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char body[256];
        (void)snprintf(body, sizeof(body), "{\"rejectedLogEventsInfo\":%s}", cases[i].info);
        struct logs_answer a = read_answer(200, NULL, body, 10);
        assert_int_equal(a.fault, LOGS_FAULT_NONE);
        assert_int_equal(a.rejected_old, cases[i].old);
        assert_int_equal(a.rejected_new, cases[i].new);
    }
}

static void names_are_held_to_the_services_rules(void **state)
{
    static char long_name[2000];
    struct error err = ERROR_INIT;
    (void)state;
    memset(long_name, 'n', sizeof(long_name));
    const struct {
        struct sv group, stream;
        int result;
    } cases[] = {
        {SV("g"), SV("s"), 0},
        {SV("azAZ09_/.#-"), SV("a b/[c]#\t"), 0},
        {SV(""), SV("s"), -EINVAL},
        {SV("g"), SV(""), -EINVAL},
        {{long_name, 511}, SV("s"), 0},
        {{long_name, 512}, SV("s"), 0},
        {{long_name, 513}, SV("s"), -EINVAL},
        {SV("g"), {long_name, 511}, 0},
        {SV("g"), {long_name, 512}, 0},
        {SV("g"), {long_name, 513}, -EINVAL},
        {SV("a b"), SV("s"), -EINVAL},
        {SV("a:b"), SV("s"), -EINVAL},
        {SV("a\0b"), SV("s"), -EINVAL},
        {SV("ü"), SV("s"), -EINVAL},
        {SV("g"), SV("a:b"), -EINVAL},
        {SV("g"), SV("*"), -EINVAL},
        {SV("g"), SV("\xff"), -EINVAL},
        {SV("g"), SV("ü"), 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        err.text[0] = '\0';
        assert_int_equal(logs_check_names(cases[i].group, cases[i].stream, &err), cases[i].result);
        assert_int_equal(err.text[0] != '\0', cases[i].result < 0);
    }
}

static void groups_of_container_insights_are_known(void **state)
{
    // ^/aws/.*containerinsights/.*/(performance|prometheus)$
    static const struct {
        const char *group;
        bool is;
    } cases[] = {
        {"/aws/containerinsights/demo/prometheus", true},
        {"/aws/containerinsights/demo/performance", true},
        {"/aws/ecs/containerinsights/a/b/prometheus", true},
        {"/aws/containerinsights//prometheus", true},
        {"/aws/containerinsights/containerinsights/prometheus", true},
        {"/aws/containerinsights/prometheus", false},
        {"/aws/containerinsights/demo/prometheus2", false},
        {"/aws/containerinsights/demo/prometheus/", false},
        {"/aws/containerinsights/demo/application", false},
        {"aws/containerinsights/demo/prometheus", false},
        {"/aws/insights/demo/prometheus", false},
        {"prometheus", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(logs_is_insights_group(sv_from(cases[i].group)), cases[i].is);
}

static void endpoints_are_a_scheme_a_host_and_a_port(void **state)
{
    static const struct {
        const char *text, *url; // NULL: refused
    } cases[] = {
        {"https://logs.eu-central-1.amazonaws.com", "https://logs.eu-central-1.amazonaws.com"},
        {"http://127.0.0.1:5000/", "http://127.0.0.1:5000"},
        {"HTTPS://Host", "https://Host"},
        {"vpce-1.logs.us-east-1.vpce.amazonaws.com",
         "https://vpce-1.logs.us-east-1.vpce.amazonaws.com"},
        {"localhost:4566", "https://localhost:4566"},
        {"http://[::1]:80", "http://[::1]:80"},
        {"http://[fd00:ec2::23]", "http://[fd00:ec2::23]"},
        {"http://h:1", "http://h:1"},
        {"http://h:65535", "http://h:65535"},
        {"http://h:0", NULL},
        {"http://h:65536", NULL},
        {"http://h:", NULL},
        {"http://h:x", NULL},
        {"http://", NULL},
        {"http:///", NULL},
        {"", NULL},
        {"/", NULL},
        {"http://:80", NULL},
        {"ftp://h", NULL},
        {"://h", NULL},
        {"http://h/path", NULL},
        {"http://h//", NULL},
        {"http://h?q", NULL},
        {"http://h#f", NULL},
        {"http://user:secret@h", NULL},
        {"http://a b", NULL},
        {"http://h\nX: y", NULL},
        {"http://[::1", NULL},
        {"http://[]", NULL},
        {"http://[::1]x", NULL},
        {"http://[g]", NULL},
        {"http://a://b", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf out = BUF_INIT(4096);
        struct error err = ERROR_INIT;
        int r = logs_read_endpoint(sv_from(cases[i].text), &out, &err);
        assert_int_equal(r, cases[i].url ? 0 : -EINVAL);
        assert_string_equal(buf_cstr(&out), cases[i].url ? cases[i].url : "");
        assert_int_equal(err.text[0] != '\0', r < 0);
        buf_deinit(&out);
    }
}

static void bodies_are_exact(void **state)
{
    static const struct logs_event events[] = {
        {1767323045000, {"{\"a\":\"<\"}", 9}},
        {-1, {"\xff", 1}},
    };
    const struct logs_batch batch = {SV("g"), SV("s\"t"), events, 2};
    struct buf out = BUF_INIT(4096);
    (void)state;
    logs_write_events(&out, &batch);
    assert_string_equal(
        buf_cstr(&out),
        "{\"logEvents\":[{\"message\":\"{\\\"a\\\":\\\"\\u003c\\\"}\",\"timestamp\":"
        "1767323045000},{\"message\":\"\\ufffd\",\"timestamp\":-1}],"
        "\"logGroupName\":\"g\",\"logStreamName\":\"s\\\"t\"}");
    buf_reset(&out);
    logs_write_group(&out, SV("g"));
    assert_string_equal(buf_cstr(&out), "{\"logGroupName\":\"g\"}");
    buf_reset(&out);
    logs_write_stream(&out, SV("g"), SV("s"));
    assert_string_equal(buf_cstr(&out), "{\"logGroupName\":\"g\",\"logStreamName\":\"s\"}");
    buf_reset(&out);
    logs_write_retention(&out, SV("g"), 30);
    assert_string_equal(buf_cstr(&out), "{\"logGroupName\":\"g\",\"retentionInDays\":30}");
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_their_faults),
        cmocka_unit_test(errors_of_any_shape_are_read),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(rejected_events_are_counted_by_their_indices),
        cmocka_unit_test(names_are_held_to_the_services_rules),
        cmocka_unit_test(groups_of_container_insights_are_known),
        cmocka_unit_test(endpoints_are_a_scheme_a_host_and_a_port),
        cmocka_unit_test(bodies_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
