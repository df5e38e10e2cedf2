// SPDX-License-Identifier: Apache-2.0
// The library's loading and the way to an engine, on fake libraries of both majors and sockets of
// our own. Arguments: the fake of DCGM 4, that of 3, a library that is not DCGM.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <netinet/in.h>

#include <cmocka.h>

#include "base/dl.h"
#include "base/num.h"
#include "fake_libdcgm.h"
#include "source/dcgm_call.h"
#include "source/dcgm_engine.h"

static const char *fake4, *fake3, *other;

struct fixture {
    struct frame_call_page page;
    struct dcgm d;
    struct fake_libdcgm *fake, was;
    struct dcgm_engine_options options;
    char address[64], text[256];
    int fd; // listens at address
    int32_t code;
};

static void set_up(struct fixture *f, const char *library)
{
    struct error err = ERROR_INIT;
    *f = (struct fixture){.fd = -1};
    f->d.page = &f->page;
    assert_int_equal(dcgm_open(&f->d, library, &err), 0);
    const struct dl_symbol symbol = {0, {"fake_libdcgm"}, (size_t)-1};
    assert_int_equal(dl_resolve(f->d.library, &symbol, 1, &f->fake), 1);
    f->was = *f->fake;
}

static void tear_down(struct fixture *f)
{
    dcgm_engine_close(&f->d);
    dcgm_close(&f->d);
    struct fake_libdcgm fresh = f->was;
    fresh.inits = fresh.shutdowns = 0;
    *f->fake = fresh;
    if (f->fd >= 0)
        (void)close(f->fd);
}

// A socket on a port of the kernel's choice; with listen it takes connections, without it refuses.
static void bind_tcp(struct fixture *f, bool do_listen)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(a);
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(f->fd, (struct sockaddr *)&a, &bytes), 0);
    if (do_listen)
        assert_int_equal(listen(f->fd, 8), 0);
    (void)snprintf(f->address, sizeof(f->address), "127.0.0.1:%u", ntohs(a.sin_port));
    f->options.addresses[f->options.address_count++] = f->address;
}

static enum frame_state_code open_engine(struct fixture *f)
{
    return dcgm_engine_open(&f->d, &f->options, &f->code, f->text, sizeof(f->text));
}

static int oom_score(void)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    int64_t score = 0;
    (void)close(fd);
    assert_true(n > 0);
    assert_int_equal(num_parse_i64(sv_trim(sv_from(text), "\n"), -1000, 1000, &score), 0);
    return (int)score;
}

// --- the library ---

static void majors_are_told_by_the_library(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    assert_int_equal(f.d.major, 4);
    assert_string_equal(f.d.version, "4.6.1");
    assert_string_equal(f.d.path, fake4);
    assert_non_null(f.d.fn.dcgmConnect_v3);
    assert_int_equal(f.fake->inits, 1);
    tear_down(&f);
    set_up(&f, fake3);
    assert_int_equal(f.d.major, 3);
    assert_string_equal(f.d.version, "3.3.9");
    assert_null(f.d.fn.dcgmConnect_v3);
    tear_down(&f);
}

static void a_function_that_is_missing_costs_itself_alone(void **state)
{
    struct fixture f;
    set_up(&f, fake3);
    uint32_t calls = f.d.calls;
    assert_null(f.d.fn.dcgmGroupDestroy);
    assert_int_equal(dcgm_call(&f.d, dcgmGroupDestroy, 1, 2), DCGM_ST_FUNCTION_NOT_FOUND);
    assert_int_equal(f.d.calls, calls);
    tear_down(&f);
}

static void a_call_to_avoid_is_not_made(void **state)
{
    const struct avoided_call avoided[] = {{SV("dcgmGetAllDevices"), UINT32_MAX},
                                           {SV("dcgmDisconnect"), 3}};
    struct fixture f;
    unsigned int ids[DCGM_MAX_NUM_DEVICES];
    int count = 0;
    set_up(&f, fake4);
    f.d.avoided = avoided;
    f.d.avoided_count = 2;
    assert_int_equal(dcgm_call(&f.d, dcgmGetAllDevices, 7, ids, &count), DCGM_ST_NOT_SUPPORTED);
    assert_int_equal(count, 0);
    assert_int_equal(dcgm_call_gpu(&f.d, 3, dcgmDisconnect, 7), DCGM_ST_NOT_SUPPORTED);
    assert_int_equal(f.fake->disconnects, 0);
    assert_int_equal(dcgm_call_gpu(&f.d, 2, dcgmDisconnect, 7), DCGM_ST_OK);
    tear_down(&f);
}

static void a_call_counts_and_tells_that_the_engine_is_lost(void **state)
{
    struct fixture f;
    unsigned int ids[DCGM_MAX_NUM_DEVICES];
    int count;
    set_up(&f, fake4);
    uint32_t calls = f.d.calls;
    f.fake->devices = DCGM_ST_GENERIC_ERROR;
    assert_int_equal(dcgm_call(&f.d, dcgmGetAllDevices, 7, ids, &count), DCGM_ST_GENERIC_ERROR);
    assert_false(f.d.lost);
    f.fake->devices = DCGM_ST_CONNECTION_NOT_VALID;
    (void)dcgm_call_gpu(&f.d, 5, dcgmGetAllDevices, 7, ids, &count);
    assert_true(f.d.lost);
    assert_int_equal(f.d.calls, calls + 2);
    assert_int_equal(f.page.calls, calls + 2);
    assert_int_equal(f.page.entered_ns, 0);
    assert_int_equal(f.page.index, 5);
    assert_string_equal(f.page.call, "dcgmGetAllDevices");
    tear_down(&f);
}

static void what_is_no_dcgm_is_refused(void **state)
{
    struct frame_call_page page = {0};
    struct dcgm d = {.page = &page};
    struct error err = ERROR_INIT;
    assert_int_equal(dcgm_open(&d, "/nonexistent/libdcgm.so.4", &err), -ENOENT);
    assert_string_equal(err.text, "'/nonexistent/libdcgm.so.4' does not exist");
    assert_int_equal(dcgm_open(&d, other, &err), -ELIBBAD);
    assert_non_null(strstr(err.text, "it has no dcgmInit"));
    assert_null(d.library);
    assert_int_equal(dcgm_open(&d, "/proc/self/status", &err), -ELIBBAD);
    assert_null(d.library);
    assert_int_equal(page.entered_ns, 0);
}

static void a_library_that_does_not_start_is_no_library(void **state)
{
    struct error err = ERROR_INIT;
    struct fixture f;
    set_up(&f, fake4);
    dcgm_close(&f.d);
    assert_int_equal(f.fake->shutdowns, 1);
    f.fake->init = DCGM_ST_INIT_ERROR;
    assert_int_equal(dcgm_open(&f.d, fake4, &err), -EIO);
    assert_string_equal(err.text, "dcgmInit: initialisation failed (-7)");
    f.fake->init = DCGM_ST_OK;
    f.fake->fields_init = DCGM_ST_GENERIC_ERROR;
    assert_int_equal(dcgm_open(&f.d, fake4, &err), -EIO);
    f.fake->fields_init = DCGM_ST_OK;
    f.fake->version = "version:5.0.0";
    assert_int_equal(dcgm_open(&f.d, fake4, &err), -ELIBBAD);
    assert_string_equal(err.text, "DCGM 5.0.0 is not known: majors 4 and 3 are");
    assert_int_equal(f.d.major, 0);
    tear_down(&f);
}

static void versions_are_found_in_the_librarys_text(void **state)
{
    static const struct {
        const char *text, *value;
        unsigned major;
    } rows[] = {
        {"version:4.6.1;arch:x86_64", "4.6.1", 4},
        {"a:b; version : 3.3.9 ;c", "3.3.9", 3},
        {"versions:1;xversion:2", "", 0},
        {"version", "", 0},
        {"version:", "", 0},
        {"version:x.y", "x.y", 0},
        {"version:300.1", "300.1", 0},
        {"", "", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        dcgmVersionInfo_v2 info = {0};
        char value[16];
        (void)snprintf(info.rawBuildInfoString, sizeof(info.rawBuildInfoString), "%s",
                       rows[i].text);
        dcgm_version_find(&info, "version", value, sizeof(value));
        assert_string_equal(value, rows[i].value);
        assert_int_equal(dcgm_version_major(value), rows[i].major);
    }
    dcgmVersionInfo_v2 full;
    char value[80];
    memset(&full, 'x', sizeof(full)); // no end
    dcgm_version_find(&full, "version", value, sizeof(value));
    assert_string_equal(value, "");
}

static void results_have_a_text(void **state)
{
    assert_string_equal(dcgm_result_text(DCGM_ST_OK), "ok");
    assert_string_equal(dcgm_result_text(DCGM_ST_CONNECTION_NOT_VALID), "connection not valid");
    assert_string_equal(dcgm_result_text(DCGM_ST_GPUS_DETACHED), "GPUs are detached");
    assert_string_equal(dcgm_result_text(-2), "unknown");
    assert_string_equal(dcgm_result_text(-68), "unknown");
    assert_string_equal(dcgm_result_text(1), "unknown");
    assert_string_equal(dcgm_result_text(INT32_MIN), "unknown");
    assert_string_equal(dcgm_result_text(INT32_MAX), "unknown");
}

// --- the engine ---

static void an_engine_that_runs_is_taken(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, true);
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_string_equal(f.text, "");
    assert_int_equal(f.d.engine, 7);
    assert_false(f.d.embedded);
    assert_string_equal(f.d.address, f.address);
    assert_string_equal(f.d.version, "4.5.2");
    assert_string_equal(f.fake->address, f.address);
    assert_int_equal(f.fake->v2.timeoutMs, 3000);
    assert_int_equal(f.fake->v2.addressIsUnixSocket, 0);
    assert_int_equal(f.fake->v2.persistAfterDisconnect, 0);
    f.d.lost = true;
    dcgm_engine_close(&f.d);
    assert_int_equal(f.fake->disconnects, 1);
    assert_int_equal(f.fake->closed, 7);
    assert_false(f.d.lost);
    assert_string_equal(f.d.address, "");
    assert_string_equal(f.d.version, "4.6.1");
    tear_down(&f);
}

static void a_form_with_a_scheme_goes_to_v3_where_it_is(void **state)
{
    struct fixture f;
    char uri[80];
    set_up(&f, fake4);
    bind_tcp(&f, true);
    (void)snprintf(uri, sizeof(uri), "tcp://%s", f.address);
    f.options.addresses[0] = uri;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_int_equal(f.fake->connects_v3, 1);
    assert_int_equal(f.fake->connects, 0);
    assert_string_equal(f.fake->address, uri);
    assert_string_equal(f.d.address, uri);
    dcgm_engine_close(&f.d);
    // A library that has the symbol and not the version behind it.
    f.fake->connect_v3 = DCGM_ST_VER_MISMATCH;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_int_equal(f.fake->connects, 1);
    assert_string_equal(f.fake->address, f.address);
    tear_down(&f);
    set_up(&f, fake3);
    bind_tcp(&f, true);
    (void)snprintf(uri, sizeof(uri), "tcp://%s", f.address);
    f.options.addresses[0] = uri;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_string_equal(f.fake->address, f.address);
    tear_down(&f);
}

static void a_unix_socket_is_said_to_be_one(void **state)
{
    const char *libraries[] = {fake4, fake3};
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
        struct fixture f;
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        char folder[] = "/tmp/podgpu-test-XXXXXX";
        set_up(&f, libraries[i]);
        assert_non_null(mkdtemp(folder));
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/he", folder);
        f.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(f.fd, (const struct sockaddr *)&a, sizeof(a)), 0);
        f.options.addresses[f.options.address_count++] = a.sun_path;
        assert_int_equal(open_engine(&f), FRAME_STATE_FAILED); // bound, and nobody listens
        assert_int_equal(f.fake->connects, 0);
        assert_int_equal(listen(f.fd, 4), 0);
        assert_int_equal(open_engine(&f), FRAME_STATE_READY);
        assert_int_equal(f.fake->v2.addressIsUnixSocket, 1);
        assert_string_equal(f.fake->address, a.sun_path);
        assert_memory_equal(f.d.address, "unix:///tmp/podgpu-test-", 24);
        (void)unlink(a.sun_path);
        (void)rmdir(folder);
        tear_down(&f);
    }
}

static void vsock_needs_v3(void **state)
{
    struct fixture f;
    set_up(&f, fake3);
    f.options.addresses[f.options.address_count++] = "vsock://1:1"; // nobody: or no vsock at all
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    assert_int_equal(f.fake->connects, 0);
    tear_down(&f);
}

static void the_first_that_answers_is_taken(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    f.options.addresses[f.options.address_count++] = "/nonexistent/hostengine";
    bind_tcp(&f, true);
    f.options.addresses[f.options.address_count++] = "/nonexistent/too";
    f.options.embed = true;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_string_equal(f.d.address, f.address);
    assert_int_equal(f.fake->connects, 1);
    assert_int_equal(f.fake->embeds, 0);
    tear_down(&f);
}

static void one_is_embedded_where_nobody_listens(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, false);
    f.options.addresses[f.options.address_count++] = "/nonexistent/hostengine";
    f.options.embed = true;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_string_equal(f.d.address, "embedded");
    assert_true(f.d.embedded);
    assert_int_equal(f.fake->connects, 0);
    assert_int_equal(f.fake->embedded.opMode, DCGM_OPERATION_MODE_AUTO);
    assert_int_equal(f.fake->embedded.severity, -1);
    assert_int_equal(f.fake->embedded.denyListCount, 3);
    assert_int_equal(f.fake->embedded.denyList[0], 5);
    assert_int_equal(oom_score(), 1000);
    dcgm_engine_close(&f.d);
    assert_int_equal(f.fake->stops, 1);
    assert_int_equal(f.fake->disconnects, 0);
    assert_int_equal(f.fake->closed, 7);
    assert_int_equal(oom_score(), 500);
    tear_down(&f);
}

static void none_is_embedded_without_leave(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, false);
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    assert_int_equal(f.code, DCGM_ST_CONNECTION_NOT_VALID);
    assert_non_null(strstr(f.text, ": nobody listens"));
    assert_int_equal(f.fake->embeds, 0);
    f.options.address_count = 0;
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    assert_string_equal(f.text, "DCGM: no address of a host engine is given");
    tear_down(&f);
}

struct refusal {
    dcgmReturn_t connect, version;
    enum frame_state_code state;
    dcgmReturn_t code;
    const char *text;
    bool closed; // what the connect gave is given back
};

// Whoever listens there may own the counters: nothing is embedded beside it.
static void none_is_embedded_beside_one_that_listens(void **state)
{
    static const struct refusal rows[] = {
        {DCGM_ST_CONNECTION_NOT_VALID, 0, FRAME_STATE_FAILED, DCGM_ST_CONNECTION_NOT_VALID,
         "connection not valid", false},
        {DCGM_ST_TIMEOUT, 0, FRAME_STATE_FAILED, DCGM_ST_TIMEOUT, "timed out", false},
        {DCGM_ST_VER_MISMATCH, 0, FRAME_STATE_MISMATCH, DCGM_ST_VER_MISMATCH, "versions differ",
         false},
        {DCGM_ST_NO_PERMISSION, 0, FRAME_STATE_NO_PERMISSION, DCGM_ST_NO_PERMISSION,
         "no permission", false},
        {DCGM_ST_OK, DCGM_ST_CONNECTION_NOT_VALID, FRAME_STATE_FAILED, DCGM_ST_CONNECTION_NOT_VALID,
         "connection not valid", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fixture f;
        char expected[128];
        set_up(&f, fake4);
        bind_tcp(&f, true);
        f.options.embed = true;
        f.fake->connect = rows[i].connect;
        f.fake->hostengine_version = rows[i].version;
        assert_int_equal(open_engine(&f), rows[i].state);
        assert_int_equal(f.code, rows[i].code);
        (void)snprintf(expected, sizeof(expected), "%s: %s", f.address, rows[i].text);
        assert_string_equal(f.text, expected);
        assert_int_equal(f.d.engine, 0);
        assert_false(f.d.lost);
        assert_int_equal(f.fake->embeds, 0);
        assert_int_equal(f.fake->disconnects, rows[i].closed);
        tear_down(&f);
    }
}

static void a_connect_that_gives_no_handle_is_none(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, true);
    f.fake->handle = 0;
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    assert_int_equal(f.code, DCGM_ST_CONNECTION_NOT_VALID);
    tear_down(&f);
}

static void an_engine_of_the_other_major_is_refused(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, true);
    f.options.embed = true;
    f.fake->engine_version = "version:3.3.9";
    assert_int_equal(open_engine(&f), FRAME_STATE_MISMATCH);
    assert_int_equal(f.code, DCGM_ST_VER_MISMATCH);
    assert_non_null(strstr(f.text, "the engine is DCGM 3.3.9 and the library 4.6.1"));
    assert_int_equal(f.fake->disconnects, 1);
    assert_int_equal(f.fake->embeds, 0);
    assert_string_equal(f.d.version, "4.6.1");
    tear_down(&f);
}

static void an_engine_that_tells_no_version_is_proved_otherwise(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    bind_tcp(&f, true);
    f.fake->hostengine_version = DCGM_ST_FUNCTION_NOT_FOUND;
    assert_int_equal(open_engine(&f), FRAME_STATE_READY);
    assert_string_equal(f.d.version, "4.6.1");
    dcgm_engine_close(&f.d);
    f.fake->devices = DCGM_ST_CONNECTION_NOT_VALID;
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    tear_down(&f);
}

static void an_address_that_is_none_is_told_and_keeps_from_embedding(void **state)
{
    struct fixture f;
    set_up(&f, fake4);
    f.options.addresses[f.options.address_count++] = "http://node";
    f.options.embed = true;
    assert_int_equal(open_engine(&f), FRAME_STATE_FAILED);
    assert_int_equal(f.code, DCGM_ST_BADPARAM);
    assert_string_equal(f.text, "http://node: tcp://, unix:// and vsock:// are known");
    assert_int_equal(f.fake->embeds, 0);
    tear_down(&f);
}

static void an_embedded_engine_that_does_not_start_says_why(void **state)
{
    static const struct {
        dcgmReturn_t result;
        enum frame_state_code state;
    } rows[] = {
        {DCGM_ST_NVML_NOT_LOADED, FRAME_STATE_NO_DRIVER},
        {DCGM_ST_INIT_ERROR, FRAME_STATE_NO_DRIVER},
        {DCGM_ST_LIBRARY_NOT_FOUND, FRAME_STATE_NO_DRIVER},
        {DCGM_ST_REQUIRES_ROOT, FRAME_STATE_NO_PERMISSION},
        {DCGM_ST_GENERIC_ERROR, FRAME_STATE_FAILED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fixture f;
        set_up(&f, fake3);
        f.options.embed = true;
        f.fake->embed = rows[i].result;
        assert_int_equal(open_engine(&f), rows[i].state);
        assert_int_equal(f.code, rows[i].result);
        assert_int_equal(f.fake->stops, 0);
        assert_false(f.d.embedded);
        assert_int_equal(oom_score(), 500);
        tear_down(&f);
    }
}

static void many_reasons_are_cut_to_the_line(void **state)
{
    struct fixture f;
    char text[40];
    set_up(&f, fake4);
    for (unsigned i = 0; i < DCGM_ADDRESSES_MAX; i++)
        f.options.addresses[f.options.address_count++] = "/nonexistent/hostengine";
    assert_int_equal(dcgm_engine_open(&f.d, &f.options, &f.code, text, sizeof(text)),
                     FRAME_STATE_FAILED);
    assert_string_equal(text, "unix:///nonexistent/hostengine: nobody ");
    tear_down(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(majors_are_told_by_the_library),
        cmocka_unit_test(a_function_that_is_missing_costs_itself_alone),
        cmocka_unit_test(a_call_to_avoid_is_not_made),
        cmocka_unit_test(a_call_counts_and_tells_that_the_engine_is_lost),
        cmocka_unit_test(what_is_no_dcgm_is_refused),
        cmocka_unit_test(a_library_that_does_not_start_is_no_library),
        cmocka_unit_test(versions_are_found_in_the_librarys_text),
        cmocka_unit_test(results_have_a_text),
        cmocka_unit_test(an_engine_that_runs_is_taken),
        cmocka_unit_test(a_form_with_a_scheme_goes_to_v3_where_it_is),
        cmocka_unit_test(a_unix_socket_is_said_to_be_one),
        cmocka_unit_test(vsock_needs_v3),
        cmocka_unit_test(the_first_that_answers_is_taken),
        cmocka_unit_test(one_is_embedded_where_nobody_listens),
        cmocka_unit_test(none_is_embedded_without_leave),
        cmocka_unit_test(none_is_embedded_beside_one_that_listens),
        cmocka_unit_test(a_connect_that_gives_no_handle_is_none),
        cmocka_unit_test(an_engine_of_the_other_major_is_refused),
        cmocka_unit_test(an_engine_that_tells_no_version_is_proved_otherwise),
        cmocka_unit_test(an_address_that_is_none_is_told_and_keeps_from_embedding),
        cmocka_unit_test(an_embedded_engine_that_does_not_start_says_why),
        cmocka_unit_test(many_reasons_are_cut_to_the_line),
    };
    if (argc < 4)
        return 2;
    fake4 = argv[1];
    fake3 = argv[2];
    other = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
