// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "codec/xml.h"

static void use_xml(void)
{
    static const char text[] = "<?xml version='1.0'?><a x='1'><b>some &lt;text&gt;</b><c/></a>";
    struct xml_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = xml_parse(SV(text), &d, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r < 0) {
        assert_null(d);
        assert_string_equal(err.text, "out of memory");
        return;
    }
    assert_true(sv_equals(xml_text(xml_root(d), "b"), SV("some <text>")));
    xml_document_free(d);
}

static void xml_survives_each_failed_allocation(void **state)
{
    assert_true(allocation_sweep(use_xml) > 10); // expat's own are among them
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xml_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
