// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/scrape_protocol.h"

static void accept_names_the_liked_protocols_first(void **state)
{
    static char om1[] = "OpenMetricsText1.0.0", om0[] = "OpenMetricsText0.0.1",
                text1[] = "PrometheusText1.0.0", text0[] = "PrometheusText0.0.4",
                proto[] = "PrometheusProto";
    static const struct {
        char *protocols[5];
        size_t count;
        bool legacy;
        const char *accept;
    } cases[] = {
        // The default of Prometheus 3.0.1, byte for byte.
        {{0},
         0,
         false,
         "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,"
         "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
         "*/*;q=0.2"},
        {{text0}, 1, false, "text/plain;version=0.0.4;q=0.6,*/*;q=0.5"},
        {{text1, om1},
         2,
         true,
         "text/plain;version=1.0.0;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,"
         "*/*;q=0.4"},
        {{proto, om0}, 2, false, "application/openmetrics-text;version=0.0.1;q=0.5,*/*;q=0.4"},
        {{proto}, 1, false, "*/*;q=0.5"},
        {{om1, om0, text1, text0, proto},
         5,
         true,
         "application/openmetrics-text;version=1.0.0;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out = BUF_INIT(4096);
        const struct prom_job job = {.protocols = (char **)(uintptr_t)cases[i].protocols,
                                     .protocol_count = cases[i].count,
                                     .legacy_names = cases[i].legacy};
        scrape_protocol_add_accept(&out, &job);
        assert_string_equal(buf_cstr(&out), cases[i].accept);
        buf_deinit(&out);
    }
}

static void content_type_decides_or_the_fallback(void **state)
{
    enum { REFUSED = -1 };
    static const struct {
        const char *type, *fallback;
        int format;
    } cases[] = {
        {"text/plain", "PrometheusProto", PARSE_PROMETHEUS},
        {" Text/Plain ; version=0.0.4", "OpenMetricsText1.0.0", PARSE_PROMETHEUS},
        {"application/openmetrics-text", "PrometheusText0.0.4", PARSE_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0", "PrometheusText0.0.4", PARSE_OPENMETRICS},
        {"", "PrometheusText0.0.4", PARSE_PROMETHEUS},
        {"", "OpenMetricsText0.0.1", PARSE_OPENMETRICS},
        {"text/html", "PrometheusText1.0.0", PARSE_PROMETHEUS},
        {"text/plainer", "OpenMetricsText1.0.0", PARSE_OPENMETRICS},
        {";", "PrometheusText0.0.4", PARSE_PROMETHEUS},
        {"text/html", "PrometheusProto", REFUSED},
        {"", "PrometheusProto", REFUSED},
        {"application/vnd.google.protobuf; encoding=delimited", "PrometheusText0.0.4", REFUSED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum parse_format format = PARSE_PROMETHEUS;
        struct error err = ERROR_INIT;
        int r = scrape_protocol_format(sv_from(cases[i].type), cases[i].fallback, &format, &err);
        assert_int_equal(r, cases[i].format == REFUSED ? -EINVAL : 0);
        assert_true((r < 0) == (err.text[0] != '\0'));
        if (r == 0)
            assert_int_equal(format, cases[i].format);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accept_names_the_liked_protocols_first),
        cmocka_unit_test(content_type_decides_or_the_fallback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
