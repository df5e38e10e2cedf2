// SPDX-License-Identifier: Apache-2.0
#include "io/web_config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "io/http_tls.h"

#define PATH "/etc/podgpu/web.yml"
#define HASH "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
#define PAIR "tls_server_config:\n  cert_file: c.pem\n  key_file: k.pem\n"

static struct web_config parse_good(const char *text)
{
    struct web_config c;
    struct error err = ERROR_INIT;
    char message[1024];
    if (web_config_parse(sv_from(text), PATH, &c, &err) < 0)
        fail_msg("refused: %s\n%s", error_text(&err, message, sizeof(message)), text);
    return c;
}

static void empty_file_is_plain_and_open(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "# nothing\n",
        "{}\n",
        "tls_server_config:\n",
        "tls_server_config: {}\n",
        "basic_auth_users:\n",
        "basic_auth_users: {}\n",
        "http_server_config:\n",
        "rate_limit:\n",
        "http_server_config: {headers: }\n",
        ("tls_server_config: {client_auth_type: , cipher_suites: , curve_preferences: , "
         "client_allowed_sans: , cert: }\n"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct web_config c = parse_good(texts[i]);
        assert_false(c.tls);
        assert_int_equal(c.user_count, 0);
        assert_int_equal(c.header_count, 0);
        assert_int_equal(c.rate_interval_ns, 0);
        assert_int_equal(c.min_version, WEB_TLS12);
        assert_int_equal(c.max_version, WEB_TLS13);
        assert_true(c.prefer_server_cipher_suites);
        assert_true(c.http2);
        web_config_deinit(&c);
    }
}

static void every_key_is_read(void **state)
{
    (void)state;
    struct web_config c = parse_good("tls_server_config:\n"
                                     "  cert_file: tls/c.pem\n"
                                     "  key_file: /abs/k.pem\n"
                                     "  client_auth_type: RequireAndVerifyClientCert\n"
                                     "  client_ca_file: ca.pem\n"
                                     "  client_allowed_sans: [scraper.example, 10.0.0.1]\n"
                                     "  min_version: TLS10\n"
                                     "  max_version: TLS12\n"
                                     "  cipher_suites:\n"
                                     "    - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\n"
                                     "    - TLS_RSA_WITH_AES_256_CBC_SHA\n"
                                     "  curve_preferences: [X25519, CurveP256]\n"
                                     "  prefer_server_cipher_suites: false\n"
                                     "http_server_config:\n"
                                     "  http2: false\n"
                                     "  headers:\n"
                                     "    Content-Security-Policy: default-src 'none'\n"
                                     "    X-Frame-Options: deny\n"
                                     "    X-Content-Type-Options: nosniff\n"
                                     "    X-XSS-Protection: '1'\n"
                                     "    Strict-Transport-Security: max-age=1\n"
                                     "rate_limit:\n"
                                     "  interval: 1m30s\n"
                                     "  burst: 20\n"
                                     "basic_auth_users:\n"
                                     "  alice: " HASH "\n"
                                     "  'bob smith': " HASH "\n");
    assert_true(c.tls);
    assert_string_equal(c.cert_file, "/etc/podgpu/tls/c.pem");
    assert_string_equal(c.key_file, "/abs/k.pem");
    assert_string_equal(c.client_ca_file, "/etc/podgpu/ca.pem");
    assert_int_equal(c.client_auth, WEB_CLIENT_REQUIRE_AND_VERIFY);
    assert_int_equal(c.allowed_san_count, 2);
    assert_string_equal(c.allowed_sans[1], "10.0.0.1");
    assert_int_equal(c.min_version, WEB_TLS10);
    assert_int_equal(c.max_version, WEB_TLS12);
    assert_int_equal(c.cipher_suite_count, 2);
    assert_string_equal(web_ciphers[c.cipher_suites[0]].name,
                        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    assert_string_equal(web_ciphers[c.cipher_suites[1]].name, "TLS_RSA_WITH_AES_256_CBC_SHA");
    assert_int_equal(c.curve_count, 2);
    assert_int_equal(c.curves[0], WEB_CURVE_X25519);
    assert_int_equal(c.curves[1], WEB_CURVE_P256);
    assert_false(c.prefer_server_cipher_suites);
    assert_false(c.http2);
    assert_int_equal(c.header_count, 5);
    assert_string_equal(c.headers[0].name, "Content-Security-Policy");
    assert_string_equal(c.headers[0].value, "default-src 'none'");
    assert_int_equal(c.rate_interval_ns, UINT64_C(90000000000));
    assert_int_equal(c.rate_burst, 20);
    assert_int_equal(c.user_count, 2);
    assert_string_equal(web_config_find_user(&c, SV("bob smith"))->hash, HASH);
    assert_null(web_config_find_user(&c, SV("bob")));
    assert_null(web_config_find_user(&c, SV("")));
    web_config_deinit(&c);
    assert_null(c.users);
}

static void relative_paths_start_at_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *path, *cert;
    } cases[] = {{"web.yml", "c.pem"},
                 {"./web.yml", "./c.pem"},
                 {"/web.yml", "/c.pem"},
                 {"a/b/web.yml", "a/b/c.pem"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct web_config c;
        assert_int_equal(web_config_parse(SV(PAIR), cases[i].path, &c, NULL), 0);
        assert_string_equal(c.cert_file, cases[i].cert);
        web_config_deinit(&c);
    }
}

static void client_auth_types_have_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum web_client_auth value;
    } cases[] = {
        {"NoClientCert", WEB_CLIENT_NONE},
        {"RequestClientCert", WEB_CLIENT_REQUEST},
        {"RequireAnyClientCert", WEB_CLIENT_REQUIRE_ANY},
        {"RequireClientCert", WEB_CLIENT_REQUIRE_ANY},
        {"VerifyClientCertIfGiven", WEB_CLIENT_VERIFY_IF_GIVEN},
        {"RequireAndVerifyClientCert", WEB_CLIENT_REQUIRE_AND_VERIFY},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), PAIR "  client_auth_type: %s\n", cases[i].name);
        struct web_config c = parse_good(text);
        assert_int_equal(c.client_auth, cases[i].value);
        web_config_deinit(&c);
    }
}

static void durations_are_gos(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {{"0", 0},
                 {"1s", 1000000000},
                 {"250ms", 250000000},
                 {"1000", 1000},
                 {"'1h'", 3600000000000}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[128];
        snprintf(text, sizeof(text), "rate_limit: {burst: 1, interval: %s}\n", cases[i].text);
        struct web_config c = parse_good(text);
        assert_int_equal(c.rate_interval_ns, cases[i].ns);
        web_config_deinit(&c);
    }
}

static void each_mistake_is_named_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line;
        const char *part; // of the message
    } cases[] = {
        {"tls:\n", 1, "tls"},
        {"tls_server_config:\n  certfile: x\n", 2, "certfile"},
        {"http_server_config:\n  http3: true\n", 2, "http3"},
        {"rate_limit:\n  bursts: 1\n", 2, "bursts"},
        {"[]\n", 1, "expected keys and values"},
        {"tls_server_config: x\n", 1, "tls_server_config: expected keys and values"},
        {"basic_auth_users:\n  a: " HASH "\n  a: " HASH "\n", 3, "a"},
        {"tls_server_config: {cert_file: c.pem}\n", 1, "one of key and key_file is needed"},
        {"tls_server_config: {key_file: c.pem}\n", 1, "one of cert and cert_file is needed"},
        {"tls_server_config:\n  client_auth_type: NoClientCert\n", 2,
         "one of cert and cert_file is needed"},
        {PAIR "  client_ca_file: ca.pem\n", 2, "need a client_auth_type"},
        {PAIR "  client_ca: x\n  client_auth_type: NoClientCert\n", 2, "need a client_auth_type"},
        {PAIR "  client_auth_type: Require\n", 4,
         "unknown client_auth_type 'Require': expected one of NoClientCert, RequestClientCert"},
        {PAIR "  client_auth_type: []\n", 4, "unknown client_auth_type ''"},
        {PAIR "  client_auth_type: VerifyClientCertIfGiven\n  client_allowed_sans: [a]\n", 2,
         "client_allowed_sans needs client_auth_type RequireAnyClientCert or "
         "RequireAndVerifyClientCert"},
        {PAIR "  client_allowed_sans: a\n", 4, "client_allowed_sans: expected a list"},
        {PAIR "  client_allowed_sans: [[a]]\n", 4, "client_allowed_sans: expected a list of names"},
        {PAIR "  min_version: TLS14\n", 4,
         "unknown TLS version 'TLS14': expected one of TLS10, TLS11, TLS12, TLS13"},
        {PAIR "  min_version: TLS13\n  max_version: TLS12\n", 2,
         "min_version is above max_version"},
        {PAIR "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", 4,
         "unknown cipher 'TLS_RSA_WITH_RC4_128_SHA'"},
        {PAIR "  cipher_suites: TLS_AES_128_GCM_SHA256\n", 4, "cipher_suites: expected a list"},
        {PAIR "  cipher_suites: [{}]\n", 4, "unknown cipher ''"},
        {PAIR "  curve_preferences: [CurveP256, P384]\n", 4, "unknown curve 'P384'"},
        {PAIR "  prefer_server_cipher_suites: maybe\n", 4, "maybe"},
        {PAIR "  cert: [x]\n", 4, "cert: expected a text"},
        {"tls_server_config:\n  key: \"a\\0b\"\n", 2, "NUL"},
        {"http_server_config:\n  http2: 2\n", 2, "2"},
        {"http_server_config:\n  headers:\n    Server: x\n", 3,
         "header 'Server' cannot be set here"},
        {"http_server_config:\n  headers:\n    X-Frame-Options: DENY\n", 3,
         "X-Frame-Options: expected 'deny' or 'sameorigin', found 'DENY'"},
        {"http_server_config:\n  headers:\n    X-Content-Type-Options: sniff\n", 3,
         "expected 'nosniff', found 'sniff'"},
        {"http_server_config:\n  headers:\n    X-Frame-Options: ''\n", 3,
         "expected 'deny' or 'sameorigin'"},
        {"http_server_config:\n  headers:\n    Content-Security-Policy: \"a\\r\\nSet-Cookie: x\"\n",
         3, "without control characters"},
        {"http_server_config:\n  headers:\n    X-XSS-Protection: [1]\n", 3,
         "X-XSS-Protection: expected a text"},
        {"http_server_config:\n  headers: [a]\n", 2, "headers: expected names and values"},
        {"rate_limit:\n  burst: -1\n", 2, "-1"},
        {"rate_limit:\n  burst: x\n", 2, "x"},
        {"rate_limit:\n  burst: 1\n  interval: 1 second\n", 3, "interval: expected a duration"},
        {"rate_limit:\n  interval: [1]\n", 2, "interval: expected a duration"},
        {"rate_limit:\n  interval: 1s\n", 2, "a burst of at least 1"},
        {"basic_auth_users: [a]\n", 1, "basic_auth_users: expected user names with bcrypt hashes"},
        {"basic_auth_users:\n  alice: password\n", 2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice: [x]\n", 2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice:\n", 2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice: "
         "$2y$03$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
         2, "user 'alice': expected a bcrypt cost from 4 to 20"},
        {"basic_auth_users:\n  alice: "
         "$2y$21$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
         2, "user 'alice': expected a bcrypt cost from 4 to 20"},
        {"basic_auth_users:\n  alice: "
         "$2y$1x$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
         2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice: "
         "$2x$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
         2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice: "
         "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeS\n",
         2, "user 'alice': expected a bcrypt hash"},
        {"basic_auth_users:\n  alice: "
         "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDe!i\n",
         2, "user 'alice': expected a bcrypt hash"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct web_config c;
        struct error err = ERROR_INIT;
        if (web_config_parse(sv_from(cases[i].text), PATH, &c, &err) != -EINVAL)
            fail_msg("taken:\n%s", cases[i].text);
        if (err.line != cases[i].line || !strstr(err.text, cases[i].part) ||
            strcmp(err.file, PATH) != 0)
            fail_msg("%s:%u: %s\nfor:\n%s", err.file, err.line, err.text, cases[i].text);
    }
}

static void hashes_are_never_in_a_message(void **state)
{
    (void)state;
    struct web_config c;
    struct error err = ERROR_INIT;
    assert_int_equal(
        web_config_parse(SV("basic_auth_users:\n  alice: sesame-open\n"), PATH, &c, &err), -EINVAL);
    assert_null(strstr(err.text, "sesame"));
}

static void user_names_are_looked_up_whole(void **state)
{
    (void)state;
    struct web_config c = parse_good("basic_auth_users:\n  alice: " HASH "\n  al: " HASH "\n");
    assert_string_equal(web_config_find_user(&c, SV("al"))->name, "al");
    assert_null(web_config_find_user(&c, SV("ali")));
    assert_null(web_config_find_user(&c, SV("alice\0")));
    web_config_deinit(&c);
}

static void lists_hold_at_most_their_limit(void **state)
{
    (void)state;
    for (int count = WEB_LIST_MAX - 1; count <= WEB_LIST_MAX + 1; count++) {
        char text[2048] = PAIR "  client_auth_type: RequireAnyClientCert\n  client_allowed_sans:\n";
        size_t len = strlen(text);
        for (int i = 0; i < count; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "    - n%d\n", i);
        struct web_config c = {0};
        assert_int_equal(web_config_parse(sv_from(text), PATH, &c, NULL),
                         count <= WEB_LIST_MAX ? 0 : -EINVAL);
        web_config_deinit(&c);
    }
}

static void headers_hold_at_most_their_limit(void **state)
{
    (void)state;
    static const char key[] = "http_server_config: {headers: {Content-Security-Policy: '";
    for (size_t len = LIMIT_WEB_HEADER_BYTES - 1; len <= LIMIT_WEB_HEADER_BYTES + 1; len++) {
        char text[LIMIT_WEB_HEADER_BYTES + 128];
        memcpy(text, key, sizeof(key));
        memset(text + sizeof(key) - 1, 'x', len);
        strcpy(text + sizeof(key) - 1 + len, "'}}\n");
        struct web_config c = {0};
        assert_int_equal(web_config_parse(sv_from(text), PATH, &c, NULL),
                         len <= LIMIT_WEB_HEADER_BYTES ? 0 : -EINVAL);
        web_config_deinit(&c);
    }
}

static void users_hold_at_most_their_limit(void **state)
{
    (void)state;
    for (int count = LIMIT_WEB_USERS; count <= LIMIT_WEB_USERS + 1; count++) {
        size_t room = (size_t)count * 80 + 64;
        char *text = malloc(room);
        size_t len = (size_t)snprintf(text, room, "basic_auth_users:\n");
        for (int i = 0; i < count; i++)
            len += (size_t)snprintf(text + len, room - len, "  u%d: %s\n", i, HASH);
        struct web_config c = {0};
        assert_int_equal(web_config_parse((struct sv){text, len}, PATH, &c, NULL),
                         count <= LIMIT_WEB_USERS ? 0 : -EINVAL);
        assert_int_equal(c.user_count, count <= LIMIT_WEB_USERS ? count : 0);
        web_config_deinit(&c);
        free(text);
    }
}

static void priorities_say_what_the_file_says(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *priority;
    } cases[] = {
        {"", "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:-CIPHER-ALL:-MAC-ALL:+AES-128-GCM:"
             "+AEAD:+AES-256-GCM:"
             "+CHACHA20-POLY1305:+ECDHE-ECDSA:+AES-128-CBC:+SHA1:+AES-256-CBC:+ECDHE-RSA:-GROUP-"
             "ALL:+GROUP-X25519:"
             "+GROUP-SECP256R1:+GROUP-SECP384R1:+GROUP-SECP521R1:%SERVER_PRECEDENCE"},
        {"  min_version: TLS13\n  cipher_suites: [TLS_AES_256_GCM_SHA384]\n  curve_preferences: "
         "[CurveP384]\n"
         "  prefer_server_cipher_suites: false\n",
         "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:-CIPHER-ALL:-MAC-ALL:+AES-256-GCM:+AEAD:-GROUP-ALL:"
         "+GROUP-SECP384R1"},
        {"  min_version: TLS10\n  max_version: TLS11\n  cipher_suites: "
         "[TLS_RSA_WITH_AES_128_CBC_SHA]\n"
         "  curve_preferences: [CurveP521, CurveP521]\n",
         "NORMAL:-VERS-ALL:+VERS-TLS1.1:+VERS-TLS1.0:-KX-ALL:-CIPHER-ALL:-MAC-ALL:+RSA:+AES-128-"
         "CBC:+SHA1:-GROUP-ALL:"
         "+GROUP-SECP521R1:%SERVER_PRECEDENCE"},
        {"  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]\n  curve_preferences: [X25519]\n",
         "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:-CIPHER-ALL:-MAC-ALL:+ECDHE-RSA:+AES-"
         "128-CBC:+SHA1:"
         "+AES-256-GCM:+AEAD:+CHACHA20-POLY1305:-GROUP-ALL:+GROUP-X25519:%SERVER_PRECEDENCE"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512], priority[HTTP_TLS_PRIORITY_BYTES];
        snprintf(text, sizeof(text), PAIR "%s", cases[i].keys);
        struct web_config c = parse_good(text);
        assert_int_equal(http_tls_priority(&c, priority, sizeof(priority)), 0);
        assert_string_equal(priority, cases[i].priority);
        web_config_deinit(&c);
    }
}

static void missing_files_are_named(void **state)
{
    (void)state;
    struct web_config c;
    struct http_tls *tls = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(web_config_parse(SV("tls_server_config: {cert_file: no.pem, key: x}\n"),
                                      "/nonexistent/w.yml", &c, &err),
                     0);
    assert_int_equal(http_tls_new(&c, &tls, &err), -ENOENT);
    assert_string_equal(err.text, "cannot read '/nonexistent/no.pem': No such file or directory");
    web_config_deinit(&c);
}

static void texts_that_are_no_certificates_are_named(void **state)
{
    (void)state;
    struct http_tls *tls = NULL;
    struct error err = ERROR_INIT;
    struct web_config c = parse_good("tls_server_config: {cert: nonsense, key: nonsense}\n");
    assert_int_equal(http_tls_new(&c, &tls, &err), -EINVAL);
    assert_memory_equal(err.text, "cert: no certificate in PEM form", 32);
    web_config_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_file_is_plain_and_open),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(relative_paths_start_at_the_file),
        cmocka_unit_test(client_auth_types_have_their_names),
        cmocka_unit_test(durations_are_gos),
        cmocka_unit_test(each_mistake_is_named_with_its_place),
        cmocka_unit_test(hashes_are_never_in_a_message),
        cmocka_unit_test(user_names_are_looked_up_whole),
        cmocka_unit_test(lists_hold_at_most_their_limit),
        cmocka_unit_test(headers_hold_at_most_their_limit),
        cmocka_unit_test(users_hold_at_most_their_limit),
        cmocka_unit_test(priorities_say_what_the_file_says),
        cmocka_unit_test(missing_files_are_named),
        cmocka_unit_test(texts_that_are_no_certificates_are_named),
    };
    return cmocka_run_group_tests_name("web config", tests, NULL, NULL);
}
