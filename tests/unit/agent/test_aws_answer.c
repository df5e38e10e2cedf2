// SPDX-License-Identifier: Apache-2.0
// What services answer; where container credentials may be; endpoints.
#include "agent/aws/answer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/aws/container_url.h"
#include "agent/aws/env.h"
#include "agent/aws/imds.h"
#include "base/clock.h"
#include "base/limits.h"

static void times_are_read(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds; // -1: no time
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-01-02T03:04:05Z", 1767323045},
        {"2026-01-02T03:04:05z", 1767323045},
        {"2026-01-02t03:04:05.999999Z", 1767323045},
        {"2026-01-02T03:04:05+00:00", 1767323045},
        {"2026-01-02T04:34:05+01:30", 1767323045},
        {"2026-01-01T22:04:05-0500", 1767323045},
        {"2024-02-29T23:59:59Z", 1709251199},
        {"9999-12-31T23:59:59Z", 253402300799},
        {"", -1},
        {"2026-01-02", -1},
        {"2026-01-02T03:04:05", -1},
        {"2026-13-02T03:04:05Z", -1},
        {"2026-00-02T03:04:05Z", -1},
        {"2026-01-32T03:04:05Z", -1},
        {"2026-01-02T24:04:05Z", -1},
        {"2026-01-02T03:60:05Z", -1},
        {"2026-01-02T03:04:05Zx", -1},
        {"2026-01-02T03:04:05+1:00", -1},
        {"1969-12-31T23:59:59Z", -1},
        {"1767323045", -1},
        {"+026-01-02T03:04:05Z", -1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t seconds = -1;
        int r = aws_time_parse(sv_from(cases[i].text), &seconds);
        assert_int_equal(r, cases[i].seconds < 0 ? -EINVAL : 0);
        assert_int_equal(seconds, cases[i].seconds);
    }
    (void)state;
}

static void show_keys(int r, struct aws_key_set *k, const struct error *err, struct buf *out)
{
    if (r < 0) {
        assert_int_equal(r, -EPROTO);
        assert_int_equal(err->code, -EPROTO);
        buf_add_str(out, err->text);
        return;
    }
    buf_add_fmt(out, "%s %s %s %lld", k->access_key, k->secret_key,
                k->session_token ? k->session_token : "-", (long long)k->expires_s);
    assert_true(k->expires_ns == UINT64_MAX);
    aws_key_set_deinit(k);
    assert_null(k->secret_key);
}

#define WHO "\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"s/+=\""
#define UNTIL "\"Expiration\": \"2026-01-02T03:04:05Z\""

static void keys_come_from_json(void **state)
{
    static const struct {
        const char *body, *keys;
    } cases[] = {
        {"{" WHO "}", "A s/+= - 0"},
        {"{" WHO ", \"Token\": \"t==\", " UNTIL ", \"RoleArn\": \"r\", \"AccountId\": \"1\"}",
         "A s/+= t== 1767323045"},
        {"{\"Code\": \"Success\", \"Type\": \"AWS-HMAC\", " WHO ", \"Token\": \"t\", " UNTIL "}",
         "A s/+= t 1767323045"},
        {"{" WHO ", \"Token\": null}", "A s/+= - 0"},
        {"{\"Code\": \"Failed\", " WHO "}", "the answer's Code is not Success"},
        {"{" WHO ", \"Expiration\": \"soon\"}", "the answer's Expiration is not a time"},
        {"{\"AccessKeyId\": \"A\"}", "no secret access key"},
        {"{\"SecretAccessKey\": \"hush\"}", "no access key"},
        {"{\"AccessKeyId\": 1, \"SecretAccessKey\": \"hush\"}", "no access key"},
        {"{\"AccessKeyId\": \"A\\r\\nX: 1\", \"SecretAccessKey\": \"s\"}",
         "the access key has a space or a character that keys do not have"},
        {"{" WHO ", \"Token\": \"a\\u00e4\"}",
         "the session token has a space or a character that keys do not have"},
        {"[]", "no access key"},
        {"", "the answer is not JSON"},
        {"<html>hush</html>", "the answer is not JSON"},
        {"{\"AccessKeyId\": \"A\", hush}", "the answer is not JSON"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct aws_key_set k;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(1024);
        int r = aws_answer_container(sv_from(cases[i].body), &k, &err);
        show_keys(r, &k, &err, &out);
        assert_string_equal(buf_cstr(&out), cases[i].keys);
        buf_deinit(&out);
    }
    (void)state;
}

#define STS(inside) "<AssumeRoleResponse xmlns=\"u\">" inside "</AssumeRoleResponse>"
#define RESULT(inside)                                                                             \
    STS("<AssumeRoleResult><AssumedRoleUser/><Credentials>" inside                                 \
        "</Credentials></AssumeRoleResult>")

static void keys_come_from_xml(void **state)
{
    static const struct {
        const char *body, *keys;
    } cases[] = {
        {RESULT("<AccessKeyId>A</AccessKeyId><SecretAccessKey>s&amp;</SecretAccessKey>"
                "<SessionToken>t</SessionToken><Expiration>2026-01-02T03:04:05Z</Expiration>"),
         "A s& t 1767323045"},
        {RESULT("<AccessKeyId>A</AccessKeyId>"), "no secret access key"},
        {RESULT(""), "no access key"},
        {STS("<AssumeRoleResult/>"), "the answer has no Credentials"},
        {STS(""), "the answer has no Credentials"},
        {"<a/>", "the answer has no Credentials"},
        {"", "the answer is not XML"},
        {"<!DOCTYPE a><a/>", "the answer is not XML"},
        {"{}", "the answer is not XML"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct aws_key_set k;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(1024);
        int r = aws_answer_sts(sv_from(cases[i].body), &k, &err);
        show_keys(r, &k, &err, &out);
        assert_string_equal(buf_cstr(&out), cases[i].keys);
        buf_deinit(&out);
    }
    (void)state;
}

static int keys_of_length(size_t access, size_t secret, size_t token)
{
    static char text[LIMIT_AWS_TOKEN_BYTES + 1];
    memset(text, 'k', sizeof(text));
    struct aws_key_set k;
    int r = aws_key_set_init(&k, (struct sv){text, access}, (struct sv){text, secret},
                             (struct sv){text, token}, NULL);
    if (r == 0)
        aws_key_set_deinit(&k);
    return r;
}

static void lengths_of_keys_are_capped(void **state)
{
    size_t key = LIMIT_AWS_KEY_BYTES, token = LIMIT_AWS_TOKEN_BYTES;
    assert_int_equal(keys_of_length(key, key, token), 0);
    assert_int_equal(keys_of_length(key + 1, key, token), -EINVAL);
    assert_int_equal(keys_of_length(key, key + 1, token), -EINVAL);
    assert_int_equal(keys_of_length(key, key, token + 1), -EINVAL);
    (void)state;
}

static void faults_are_read_in_each_form(void **state)
{
    static const struct {
        const char *body, *code, *message;
    } cases[] = {
        {"<ErrorResponse xmlns='u'><Error><Type>Sender</Type><Code>C</Code><Message>M m</Message>"
         "</Error></ErrorResponse>",
         "C", "M m"},
        {"<Response><Errors><Error><Code>C</Code><Message>a\nb</Message></Error></Errors></"
         "Response>",
         "C", "a b"},
        {"{\"code\": \"C\", \"message\": \"M\"}", "C", "M"},
        {"{\"Code\": \"C\", \"Message\": \"M\"}", "C", "M"},
        {"{\"code\": 1}", "", ""},
        {"<a/>", "", ""},
        {"", "", ""},
        {"garbage", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct aws_fault fault;
        aws_answer_fault(sv_from(cases[i].body), &fault);
        assert_string_equal(fault.code, cases[i].code);
        assert_string_equal(fault.message, cases[i].message);
    }
    (void)state;
}

static void add_tag(void *user, struct sv key, struct sv value)
{
    buf_add_fmt(user, "%.*s=%.*s;", SV_FMT(key), SV_FMT(value));
}

static void tags_are_read(void **state)
{
    static const struct {
        const char *body, *tags, *next;
    } cases[] = {
        {"<R><tagSet><item><key>a</key><value>b</value></item><item><key>c</key></item></tagSet>"
         "<nextToken>n</nextToken></R>",
         "a=b;c=;", "n"},
        {"<R><tagSet/></R>", "", ""},
        {"<R><nextToken/><tagSet> <item/> </tagSet></R>", "=;", ""},
        {"<R/>", NULL, NULL},
        {"", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf tags = BUF_INIT(1024), next = BUF_INIT(16);
        int r = aws_answer_tags(sv_from(cases[i].body), add_tag, &tags, &next, NULL);
        assert_int_equal(r, cases[i].tags ? 0 : -EPROTO);
        if (cases[i].tags) {
            assert_string_equal(buf_cstr(&tags), cases[i].tags);
            assert_string_equal(buf_cstr(&next), cases[i].next);
        }
        buf_deinit(&tags);
        buf_deinit(&next);
    }
    struct buf tags = BUF_INIT(1024), next = BUF_INIT(4);
    assert_int_equal(aws_answer_tags(SV("<R><tagSet/><nextToken>12345</nextToken></R>"), add_tag,
                                     &tags, &next, NULL),
                     -EPROTO);
    buf_deinit(&tags);
    buf_deinit(&next);
    (void)state;
}

static void tasks_are_read(void **state)
{
    static const struct {
        const char *body, *found; // "cluster region"; NULL: no answer
    } cases[] = {
        {"{\"Cluster\": \"arn:aws:ecs:eu-west-1:1:cluster/c1\", \"TaskARN\": "
         "\"arn:aws:ecs:eu-west-1:1:task/c1/x\"}",
         "c1 eu-west-1"},
        {"{\"Cluster\": \"default\", \"TaskARN\": \"arn:aws-cn:ecs:cn-north-1:1:task/x\"}",
         "default cn-north-1"},
        {"{\"Cluster\": \"arn:aws:ecs\", \"TaskARN\": \"arn:aws\"}", " "},
        {"{}", " "},
        {"[]", " "},
        {"x", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf cluster = BUF_INIT(64), region = BUF_INIT(64);
        int r = aws_answer_task(sv_from(cases[i].body), &cluster, &region, NULL);
        assert_int_equal(r, cases[i].found ? 0 : -EPROTO);
        buf_add_char(&cluster, ' ');
        buf_add_sv(&cluster, buf_sv(&region));
        if (cases[i].found)
            assert_string_equal(buf_cstr(&cluster), cases[i].found);
        buf_deinit(&cluster);
        buf_deinit(&region);
    }
    (void)state;
}

static void each_truncation_of_an_answer_is_refused(void **state)
{
    static const char xml[] = RESULT("<AccessKeyId>A</AccessKeyId><SecretAccessKey>s"
                                     "</SecretAccessKey>");
    static const char json[] = "{" WHO "}";
    struct aws_key_set k;
    for (size_t n = 0; n < sizeof(xml) - 1; n++)
        assert_int_equal(aws_answer_sts((struct sv){xml, n}, &k, NULL), -EPROTO);
    for (size_t n = 0; n < sizeof(json) - 1; n++)
        assert_int_equal(aws_answer_container((struct sv){json, n}, &k, NULL), -EPROTO);
    (void)state;
}

static void container_urls_are_held_to_the_hosts_that_may_be(void **state)
{
    static const struct {
        const char *url;
        int allowed; // 0 no, 1 through a proxy perhaps, 2 directly
    } cases[] = {
        {"http://169.254.170.2/v2/x", 2},
        {"http://169.254.170.23/v1/credentials", 2},
        {"http://[fd00:ec2::23]/v1/credentials", 2},
        {"http://[FD00:EC2:0:0::23]:80/", 2},
        {"http://127.0.0.1:8080/x?y=z", 2},
        {"http://127.255.255.254", 2},
        {"http://[::1]:1/", 2},
        {"http://LocalHost/", 2},
        {"HTTP://localhost/", 2},
        {"https://localhost/", 2},
        {"https://example.com/x", 1},
        {"https://10.0.0.1", 1},
        {"http://example.com/", 0},
        {"http://10.0.0.1/", 0},
        {"http://169.254.169.254/", 0},
        {"http://169.254.170.22/", 0},
        {"http://169.254.170.2.example.com/", 0},
        {"http://[fd00:ec2::254]/", 0},
        {"http://127.0.0.1@example.com/", 0},
        {"https://user@localhost/", 0},
        {"http://127.1/", 0},
        {"http://0x7f.0.0.1/", 0},
        {"http://2130706433/", 0},
        {"http://127.0.0.1\\@example.com/", 0},
        {"http://[::ffff:127.0.0.1]/", 0},
        {"http://[::1/", 0},
        {"http://", 0},
        {"http:///x", 0},
        {"http:/127.0.0.1/", 0},
        {"file:///etc/passwd", 0},
        {"ftp://127.0.0.1/", 0},
        {"127.0.0.1", 0},
        {"", 0},
        {"http://127.0.0.1/ x", 0},
        {"http://127.0.0.1/\n", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool is_local = false;
        struct error err = ERROR_INIT;
        int r = aws_container_url_check(sv_from(cases[i].url), &is_local, &err);
        assert_int_equal(r, cases[i].allowed ? 0 : -EINVAL);
        if (cases[i].allowed)
            assert_int_equal(is_local, cases[i].allowed == 2);
        else
            assert_non_null(strstr(err.text, "AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    }
    (void)state;
}

// --- The environment ---

static void variables_are_found_by_their_whole_name(void **state)
{
    char *const vars[] = {"AB=1", "A=2", "C=", "A=3", "=x", "noequals", NULL};
    struct aws_env env = {.environment = vars};
    assert_string_equal(aws_env_get(&env, "A"), "2");
    assert_string_equal(aws_env_get(&env, "AB"), "1");
    assert_null(aws_env_get(&env, "C"));
    assert_null(aws_env_get(&env, "B"));
    assert_null(aws_env_get(&env, "noequals"));
    (void)state;
}

#define FIPS "AWS_USE_FIPS_ENDPOINT=true"
#define DUAL "AWS_USE_DUALSTACK_ENDPOINT=True"

static void endpoints_are_those_of_the_table(void **state)
{
    static const struct {
        const char *service, *region;
        char *env[3];
        const char *url;
    } cases[] = {
        {"logs", "us-west-2", {NULL}, "https://logs.us-west-2.amazonaws.com"},
        {"logs", "us-west-2", {DUAL}, "https://logs.us-west-2.api.aws"},
        {"logs", "us-west-2", {FIPS}, "https://logs-fips.us-west-2.amazonaws.com"},
        {"logs", "us-west-2", {FIPS, DUAL}, "https://logs-fips.us-west-2.api.aws"},
        {"monitoring", "eu-west-1", {NULL}, "https://monitoring.eu-west-1.amazonaws.com"},
        {"monitoring", "eu-west-1", {DUAL}, "https://monitoring.eu-west-1.api.aws"},
        {"monitoring", "eu-west-1", {FIPS}, "https://monitoring-fips.eu-west-1.amazonaws.com"},
        {"sts", "eu-west-1", {NULL}, "https://sts.eu-west-1.amazonaws.com"},
        {"sts", "eu-west-1", {DUAL}, "https://sts.eu-west-1.api.aws"},
        {"sts", "eu-west-1", {FIPS}, "https://sts-fips.eu-west-1.amazonaws.com"},
        {"aps-workspaces", "eu-west-1", {NULL}, "https://aps-workspaces.eu-west-1.amazonaws.com"},
        {"aps-workspaces", "eu-west-1", {DUAL}, "https://aps-workspaces.eu-west-1.api.aws"},
        {"aps-workspaces",
         "eu-west-1",
         {FIPS},
         "https://aps-workspaces-fips.eu-west-1.amazonaws.com"},
        {"logs", "cn-north-1", {NULL}, "https://logs.cn-north-1.amazonaws.com.cn"},
        {"logs", "cn-north-1", {DUAL}, "https://logs.cn-north-1.api.amazonwebservices.com.cn"},
        {"logs", "us-gov-west-1", {NULL}, "https://logs.us-gov-west-1.amazonaws.com"},
        {"logs", "us-gov-west-1", {FIPS}, "https://logs.us-gov-west-1.amazonaws.com"},
        {"logs", "us-iso-east-1", {NULL}, "https://logs.us-iso-east-1.c2s.ic.gov"},
        {"logs", "us-isob-east-1", {NULL}, "https://logs.us-isob-east-1.sc2s.sgov.gov"},
        {"logs", "x", {"AWS_ENDPOINT_URL=http://a/"}, "http://a"},
        {"logs",
         "x",
         {"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=http://b//", "AWS_ENDPOINT_URL=http://a"},
         "http://b"},
        {"sts",
         "x",
         {"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=http://b", "AWS_ENDPOINT_URL_STS=http://c"},
         "http://c"},
        {"ec2", "us-east-1", {"AWS_USE_FIPS_ENDPOINT=no"}, "https://ec2.us-east-1.amazonaws.com"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct aws_env env = {.environment = cases[i].env};
        struct buf out = BUF_INIT(256);
        aws_endpoint(&env, cases[i].service, cases[i].region, false, &out);
        assert_int_equal(out.error, 0);
        assert_string_equal(buf_cstr(&out), cases[i].url);
        buf_deinit(&out);
    }
    (void)state;
}

static void partitions_have_a_main_region(void **state)
{
    static const char *const cases[][2] = {
        {"eu-central-1", "us-east-1"},
        {"aws", "us-east-1"},
        {"cn-northwest-1", "cn-north-1"},
        {"aws-cn", "cn-north-1"},
        {"us-gov-east-1", "us-gov-west-1"},
        {"aws-us-gov", "us-gov-west-1"},
        {"us-iso-west-1", "us-iso-east-1"},
        {"aws-iso", "us-iso-east-1"},
        {"us-isob-west-1", "us-isob-east-1"},
        {"aws-iso-b", "us-isob-east-1"},
        {"", "us-east-1"},
        {"nonsense", "us-east-1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(aws_partition_of(sv_from(cases[i][0]))->main_region, cases[i][1]);
    (void)state;
}

static void metadata_is_where_it_is_said_to_be(void **state)
{
    static const struct {
        char *env[3];
        const char *url;
    } cases[] = {
        {{NULL}, "http://169.254.169.254"},
        {{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6"}, "http://[fd00:ec2::254]"},
        {{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=ipv4"}, "http://169.254.169.254"},
        {{"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1/",
          "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6"},
         "http://127.0.0.1:1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct aws_env env = {.environment = cases[i].env};
        struct buf out = BUF_INIT(256);
        aws_imds_endpoint(&env, &out);
        assert_string_equal(buf_cstr(&out), cases[i].url);
        buf_deinit(&out);
    }
    (void)state;
}

static void keys_are_refreshed_five_to_ten_minutes_ahead(void **state)
{
    static const struct {
        uint64_t life_s, earliest_s, latest_s;
    } cases[] = {
        {12 * 3600, 12 * 3600 - 600, 12 * 3600 - 300},
        {3600, 3000, 3300},
        {900, 450, 600}, // an assumed role's shortest
        {600, 300, 400},
        {6, 3, 4},
        {1, 1, 1},
        {0, 1, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t life_ns = cases[i].life_s * NS_PER_S;
        uint64_t spread_ns = (cases[i].latest_s - cases[i].earliest_s) * NS_PER_S;
        assert_true(aws_keys_refresh_ns(life_ns, 0) == cases[i].latest_s * NS_PER_S);
        if (spread_ns > 0)
            assert_true(aws_keys_refresh_ns(life_ns, spread_ns) == cases[i].earliest_s * NS_PER_S);
        assert_true(aws_keys_refresh_ns(life_ns, UINT64_MAX) >= cases[i].earliest_s * NS_PER_S);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(keys_come_from_json),
        cmocka_unit_test(keys_come_from_xml),
        cmocka_unit_test(lengths_of_keys_are_capped),
        cmocka_unit_test(faults_are_read_in_each_form),
        cmocka_unit_test(tags_are_read),
        cmocka_unit_test(tasks_are_read),
        cmocka_unit_test(each_truncation_of_an_answer_is_refused),
        cmocka_unit_test(container_urls_are_held_to_the_hosts_that_may_be),
        cmocka_unit_test(variables_are_found_by_their_whole_name),
        cmocka_unit_test(endpoints_are_those_of_the_table),
        cmocka_unit_test(partitions_have_a_main_region),
        cmocka_unit_test(metadata_is_where_it_is_said_to_be),
        cmocka_unit_test(keys_are_refreshed_five_to_ten_minutes_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
