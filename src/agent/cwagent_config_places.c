// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "agent/cwagent_config_internal.h"
#include "base/limits.h"

#define REGION_CHARACTERS 64
#define PATH_CHARACTERS 4096

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// It becomes part of host names.
void cw_region_read(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    char *region = NULL;
    if (!cw_text_read(r, n, 1, REGION_CHARACTERS, &region))
        return;
    for (const char *c = region; *c; c++) {
        if (!is_letter_or_digit(*c) && *c != '-')
            return cw_unexpected(r, n, "the name of a region as in \"us-east-1\"");
    }
    v->config.region = region;
}

// What is wrong with the URL, or NULL. It may hold a password, so no message shows it.
static const char *check_endpoint(struct sv scheme, struct sv rest)
{
    size_t end = 0;
    while (end < rest.len && !strchr("/?#", rest.ptr[end]))
        end++;
    struct sv authority = sv_sub(rest, 0, end), path = sv_sub(rest, end, rest.len);
    if (scheme.len && !sv_equals_nocase(scheme, SV("https")) &&
        !sv_equals_nocase(scheme, SV("http")))
        return "expected an http or https URL";
    if (sv_find_char(authority, '@') != (size_t)-1)
        return "expected a URL without user and password";
    if (!authority.len || authority.ptr[0] == ':')
        return "expected a URL with a host";
    if (sv_find_char(path, '?') != (size_t)-1 || sv_find_char(path, '#') != (size_t)-1)
        return "expected a URL without query and fragment";
    for (size_t i = 0; i < rest.len; i++) {
        if ((unsigned char)rest.ptr[i] <= ' ' || (unsigned char)rest.ptr[i] >= 0x7f)
            return "expected a URL without blanks, control characters and non-ASCII letters";
    }
    return NULL;
}

// The agent's SDK puts https before an address without a scheme.
void cw_endpoint_read(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    char *text = NULL;
    if (!cw_text_read(r, n, 4, 2048, &text))
        return;
    struct sv url = sv_from(text), scheme = SV("");
    size_t mark = sv_find(url, SV("://"));
    if (mark != (size_t)-1) {
        scheme = sv_sub(url, 0, mark);
        url = sv_sub(url, mark + 3, url.len);
    }
    const char *problem = check_endpoint(scheme, url);
    if (problem)
        return cw_problem(r, n, "%s", problem);
    char *whole = scheme.len ? text : cw_alloc(r, strlen("https://") + url.len + 1, 1);
    if (!scheme.len && whole) {
        memcpy(whole, "https://", strlen("https://"));
        memcpy(whole + strlen("https://"), url.ptr, url.len);
    }
    v->config.endpoint_override = whole;
}

// Characters: CloudWatch Logs API, CreateLogGroup. Braces hold a placeholder, which is filled in
// for each event.
static bool is_log_group(struct sv s)
{
    bool inside = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == (inside ? '}' : '{'))
            inside = !inside;
        else if (!is_letter_or_digit(c) && (inside || !c || !strchr("_-/.#", c)))
            return false;
    }
    return !inside;
}

void cw_log_group_read(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    char *name = NULL;
    if (!cw_text_read(r, n, 0, 512, &name) || !*name)
        return;
    if (!is_log_group(sv_from(name)))
        return cw_unexpected(r, n, "letters, digits, _ - / . # and {Placeholders}");
    v->config.log_group = name;
}

static void read_variable(struct cw_reader *r, const struct json_node *n, struct cw_values *v)
{
    const char *name = n->string.ptr + strlen("env:");
    const char *text = *name ? cw_environment_find(v->from, name) : NULL;
    if (!text || !*text)
        return cw_problem(r, n, "the environment variable '%.64s' is %s", name,
                          text ? "empty" : "not set");
    if (strlen(text) > LIMIT_CONFIG_FILE_BYTES)
        return cw_problem(r, n, "the environment variable '%.64s' has more than %u bytes", name,
                          LIMIT_CONFIG_FILE_BYTES);
    v->config.prometheus_text = cw_copy(r, sv_from(text));
    v->config.prometheus_text_name = cw_copy(r, n->string);
}

void cw_prometheus_path_read(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    if (!cw_expect(r, n, JSON_STRING))
        return;
    if (sv_starts_with(n->string, SV("env:")))
        return read_variable(r, n, v);
    struct sv path = n->string;
    if (sv_starts_with(path, SV("file:")))
        path = sv_sub(path, strlen("file:"), path.len);
    if (!path.len || path.ptr[0] != '/' || path.len > PATH_CHARACTERS)
        return cw_unexpected(r, n, "an absolute path, file:PATH or env:NAME");
    while (sv_starts_with(path, SV("//")))
        path = sv_sub(path, 1, path.len);
    v->config.prometheus_path = cw_copy(r, path);
}
