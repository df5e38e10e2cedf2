// SPDX-License-Identifier: Apache-2.0
// Any bytes either become a web configuration within its caps, with a priority string, or are
// refused with a reason.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "io/http_tls.h"
#include "io/web_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct web_config c;
    struct error err = ERROR_INIT;
    if (web_config_parse((struct sv){(const char *)data, size}, "/etc/web.yml", &c, &err) < 0) {
        assert(err.code < 0 && err.text[0]);
        return 0;
    }
    char priority[HTTP_TLS_PRIORITY_BYTES];
    assert(http_tls_priority(&c, priority, sizeof(priority)) == 0);
    assert(strncmp(priority, "NORMAL:-VERS-ALL", 16) == 0);
    assert(c.header_count <= WEB_HEADERS_MAX && c.user_count <= LIMIT_WEB_USERS);
    assert(!c.tls ||
           ((c.cert || c.cert_file) && (c.key || c.key_file) && c.min_version <= c.max_version));
    for (size_t i = 0; i < c.user_count; i++) {
        assert(strlen(c.users[i].hash) == 60);
        assert(web_config_find_user(&c, sv_from(c.users[i].name)));
    }
    for (size_t i = 0; i < c.header_count; i++)
        assert(!strpbrk(c.headers[i].value, "\r\n"));
    web_config_deinit(&c);
    return 0;
}
