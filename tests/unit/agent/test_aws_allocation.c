// SPDX-License-Identifier: Apache-2.0
// Each allocation of ours fails once, from the first look to keys or a name: whoever waits is told
// exactly once, and nothing leaks (the sanitizer lane looks). What libcurl allocates is not
// touched.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../allocation_sweep.h"
#include "agent/aws/answer.h"
#include "agent/aws/credentials.h"
#include "agent/aws/profile.h"
#include "base/clock.h"
#include "base/log.h"

// --- What is read ---

static void use_files(void)
{
    static const char text[] = "[default]\nrole_arn = r\nsource_profile = b\n[b]\n"
                               "aws_access_key_id = A\naws_secret_access_key = s\n";
    struct aws_profiles p = {.credentials_file = "c", .config_file = "f"};
    struct aws_plan plan;
    struct error err = ERROR_INIT;
    int r = ini_parse(SV(text), "c", &p.credentials, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_int_equal(aws_profile_plan(&p, SV("default"), &plan, NULL), 0);
    ini_deinit(&p.credentials);
}

static void on_tag(void *user, struct sv key, struct sv value)
{
    (void)user;
    assert_true(sv_equals(key, SV("k")) && sv_equals(value, SV("v")));
}

static void use_answers(void)
{
    static const char json[] = "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"Token\":\"t\"}";
    static const char xml[] = "<a><aResult><Credentials><AccessKeyId>A</AccessKeyId>"
                              "<SecretAccessKey>s</SecretAccessKey></Credentials></aResult></a>";
    static const char tags[] = "<a><tagSet><item><key>k</key><value>v</value></item></tagSet>"
                               "<nextToken>n</nextToken></a>";
    struct aws_key_set k;
    struct buf next = BUF_INIT(64), region = BUF_INIT(64);
    struct aws_fault fault;
    int r = aws_answer_container(SV(json), &k, NULL);
    if (r == 0)
        aws_key_set_deinit(&k);
    if (r == 0)
        r = aws_answer_sts(SV(xml), &k, NULL);
    if (r == 0)
        aws_key_set_deinit(&k);
    if (r == 0)
        r = aws_answer_tags(SV(tags), on_tag, NULL, &next, NULL);
    if (r == 0)
        r = aws_answer_task(SV("{\"Cluster\":\"c\",\"TaskARN\":\"a:b:c:r\"}"), &next, &region,
                            NULL);
    if (r == 0)
        aws_answer_fault(SV("{\"code\":\"c\"}"), &fault); // without memory there is no code
    else
        assert_int_equal(r, -ENOMEM);
    assert_true(r == 0 || allocation_failed);
    buf_deinit(&next);
    buf_deinit(&region);
}

// --- What is asked ---

static struct loop *the_loop;
static int listener, peer = -1;
static char url[64], endpoint[128], sts_endpoint[128];
static const char *const *bodies; // of the answers, in order; the last one again and again
static unsigned answers, told, found;

// It answers before it was asked: the same thread has yet to send the request.
static void on_connection(void *user, unsigned events)
{
    char answer[1024];
    (void)user;
    (void)events;
    fd_closep(&peer);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const char *body = bodies[answers];
    answers += bodies[answers + 1] != NULL;
    int length = snprintf(answer, sizeof(answer),
                          "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          strlen(body), body);
    if (peer >= 0) {
        (void)send(peer, answer, (size_t)length, MSG_NOSIGNAL);
        (void)shutdown(peer, SHUT_WR);
    }
}

static void on_changed(void *user)
{
    (void)user;
    told++;
    loop_stop(the_loop, 0);
}

static void use_credentials(struct aws_env *env, const char *role)
{
    struct aws_credentials *c = NULL;
    struct aws_keys keys;
    struct error err = ERROR_INIT;
    if (aws_credentials_new(env, role, "r-1", &c) < 0) {
        assert_true(allocation_failed);
        return;
    }
    aws_credentials_watch(c, on_changed, NULL);
    int r = aws_credentials_get(c, &keys, &err);
    if (r == -EAGAIN) {
        unsigned before = told;
        assert_int_equal(loop_run(the_loop), 0);
        assert_int_equal(told, before + 1);
        r = aws_credentials_get(c, &keys, &err);
    }
    assert_true(r == 0 || (allocation_failed && r < 0 && r != -EAGAIN && err.text[0]));
    found += r == 0;
    aws_credentials_free(c);
}

static void with_client(char *const *environment, const char *role)
{
    struct aws_env env = {the_loop, NULL, environment};
    answers = 0;
    if (http_client_new(the_loop, &env.client, NULL) < 0)
        assert_true(allocation_failed);
    else
        use_credentials(&env, role);
    http_client_free(env.client);
}

#define STS_KEYS                                                                                   \
    "<a><aResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"    \
    "<SessionToken>t</SessionToken></Credentials></aResult></a>"

static void use_web_identity(void)
{
    static const char *const list[] = {STS_KEYS, STS_KEYS, NULL};
    char *const environment[] = {"AWS_ROLE_ARN=arn:aws:iam::1:role/r",
                                 "AWS_WEB_IDENTITY_TOKEN_FILE=/proc/self/comm", sts_endpoint, NULL};
    bodies = list;
    with_client(environment, "arn:aws:iam::1:role/top");
}

static void use_metadata(void)
{
    static const char *const list[] = {"token", "role",
                                       "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\"}", NULL};
    char *const environment[] = {endpoint, "HOME=/nonexistent", NULL};
    bodies = list;
    with_client(environment, NULL);
}

static void on_name(void *user, const char *text, const struct error *err)
{
    struct aws_lookup **l = user;
    told++;
    found += *text != '\0';
    assert_true(*text || (allocation_failed && err->text[0]));
    aws_lookup_free(*l);
    *l = NULL;
    loop_stop(the_loop, 0);
}

static void wait_for_name(int r, struct aws_lookup **l)
{
    unsigned before = told;
    if (r < 0) {
        assert_true(allocation_failed && !*l);
        return;
    }
    assert_int_equal(loop_run(the_loop), 0);
    assert_int_equal(told, before + 1);
}

static void use_region(void)
{
    static const char *const list[] = {"token", "eu-west-1", NULL};
    char *const environment[] = {endpoint, "HOME=/nonexistent", NULL};
    struct aws_env env = {the_loop, NULL, environment};
    struct aws_lookup *l = NULL;
    bodies = list;
    answers = 0;
    if (http_client_new(the_loop, &env.client, NULL) < 0)
        assert_true(allocation_failed);
    else
        wait_for_name(aws_region_find(&env, NULL, on_name, &l, &l), &l);
    http_client_free(env.client);
}

static void use_cluster(void)
{
    static const char *const list[] = {"token", "i-1",
                                       "<a><tagSet><item><key>kubernetes.io/cluster/c</"
                                       "key><value>owned</value></item></tagSet></a>",
                                       NULL};
    static char ec2[128];
    (void)snprintf(ec2, sizeof(ec2), "AWS_ENDPOINT_URL_EC2=%s", url);
    char *const environment[] = {endpoint, "AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=s", ec2,
                                 NULL};
    struct aws_env env = {the_loop, NULL, environment};
    struct aws_credentials *c = NULL;
    struct aws_lookup *l = NULL;
    bodies = list;
    answers = 0;
    if (http_client_new(the_loop, &env.client, NULL) < 0 ||
        aws_credentials_new(&env, NULL, NULL, &c) < 0)
        assert_true(allocation_failed);
    else
        wait_for_name(aws_cluster_find(&env, NULL, "r-1", c, on_name, &l, &l), &l);
    aws_credentials_free(c);
    http_client_free(env.client);
}

// libuv ends the program when its table of descriptors cannot grow: it has the room beforehand.
static int widen_loop(void)
{
    struct loop_fd *watch = NULL;
    int fd = fcntl(listener, F_DUPFD_CLOEXEC, 250);
    int r = fd < 0 ? -1 : loop_fd_new(the_loop, fd, LOOP_READABLE, on_connection, NULL, &watch);
    loop_fd_free(watch);
    fd_closep(&fd);
    return r;
}

static int open_listener(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    (void)state;
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        listen(listener, 16) < 0 || getsockname(listener, (struct sockaddr *)&at, &length) < 0)
        return -1;
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(at.sin_port));
    (void)snprintf(endpoint, sizeof(endpoint), "AWS_EC2_METADATA_SERVICE_ENDPOINT=%s", url);
    (void)snprintf(sts_endpoint, sizeof(sts_endpoint), "AWS_ENDPOINT_URL_STS=%s", url);
    return loop_new(&the_loop) < 0 || widen_loop() < 0 ? -1 : 0;
}

static int close_listener(void **state)
{
    (void)state;
    fd_closep(&peer);
    fd_closep(&listener);
    loop_free(the_loop);
    return 0;
}

static void what_is_read(void **state)
{
    assert_true(allocation_sweep(use_files) > 0);
    assert_true(allocation_sweep(use_answers) > 30);
    (void)state;
}

static void what_is_asked(void **state)
{
    static void (*const uses[])(void) = {use_web_identity, use_metadata, use_region, use_cluster};
    struct loop_fd *watch = NULL;
    assert_int_equal(loop_fd_new(the_loop, listener, LOOP_READABLE, on_connection, NULL, &watch),
                     0);
    for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
        found = 0;
        assert_true(allocation_sweep(uses[i]) > 10);
        assert_true(found > 0);
    }
    loop_fd_free(watch);
    (void)state;
}

static struct aws_credentials *the_credentials;

static void on_changed_free(void *user)
{
    aws_credentials_free(TAKE_PTR(the_credentials));
    on_changed(user);
}

static void credentials_may_be_freed_when_they_change(void **state)
{
    static const char *const good[] = {STS_KEYS, NULL}, *const bad[] = {"<a/>", NULL};
    char *const environment[] = {"AWS_ROLE_ARN=arn:aws:iam::1:role/r",
                                 "AWS_WEB_IDENTITY_TOKEN_FILE=/proc/self/comm", sts_endpoint, NULL};
    struct aws_env env = {the_loop, NULL, environment};
    struct loop_fd *watch = NULL;
    assert_int_equal(loop_fd_new(the_loop, listener, LOOP_READABLE, on_connection, NULL, &watch),
                     0);
    assert_int_equal(http_client_new(the_loop, &env.client, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        bodies = i == 0 ? good : bad;
        answers = 0;
        assert_int_equal(aws_credentials_new(&env, NULL, NULL, &the_credentials), 0);
        aws_credentials_watch(the_credentials, on_changed_free, NULL);
        assert_int_equal(loop_run(the_loop), 0);
        assert_null(the_credentials);
    }
    http_client_free(env.client);
    loop_fd_free(watch);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read),
        cmocka_unit_test(what_is_asked),
        cmocka_unit_test(credentials_may_be_freed_when_they_change),
    };
    return cmocka_run_group_tests(tests, open_listener, close_listener);
}
