// SPDX-License-Identifier: Apache-2.0
// What every page is: UTF-8, each line well formed, no label twice in a line, no series twice.
// Aborts.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "metrics/text.h"

static inline void page_must(bool holds)
{
    if (!holds)
        abort();
}

// Behind a label's closing quote, or NULL.
static inline const char *page_check_label_end(const char *at)
{
    for (; *at != '"'; at++) {
        if (*at == '\0' || *at == '\n')
            return NULL;
        if (*at == '\\' && (at++, *at != '\\' && *at != '"' && *at != 'n'))
            return NULL;
    }
    return at + 1;
}

// Checks `{name="value",...}`; returns what is behind it.
static inline const char *page_check_labels(const char *at)
{
    struct map names = MAP_INIT(100);
    while (*at++ != '}') {
        size_t length = strcspn(at, "=\n");
        page_must(text_is_label_name((struct sv){at, length}) && at[length + 1] == '"');
        void *before = NULL;
        page_must(map_put(&names, (struct sv){at, length}, &names, &before) == 0 && !before);
        at = page_check_label_end(at + length + 2);
        page_must(at && (*at == ',' || *at == '}'));
    }
    map_deinit(&names);
    return at;
}

static inline void page_check(const char *page, enum text_format format)
{
    page_must(sv_is_utf8(sv_from(page)));
    struct map series = MAP_INIT(100000);
    const char *at = page;
    for (; *at && strncmp(at, "# EOF", 5) != 0; at = strchr(at, '\n') + 1) {
        page_must(strchr(at, '\n') != NULL);
        if (*at == '#') {
            page_must(strncmp(at, "# HELP ", 7) == 0 || strncmp(at, "# TYPE ", 7) == 0);
            continue;
        }
        size_t length = strcspn(at, "{ \n");
        page_must(text_is_metric_name((struct sv){at, length}));
        const char *end = at[length] == '{' ? page_check_labels(at + length) : at + length;
        page_must(*end == ' ');
        void *before = NULL;
        page_must(map_put(&series, (struct sv){at, (size_t)(end - at)}, &series, &before) == 0 &&
                  !before);
        page_must(end[1 + strspn(end + 1, "0123456789.-+e")] == '\n');
    }
    page_must(strcmp(at, format == TEXT_FORMAT_OPENMETRICS ? "# EOF\n" : "") == 0);
    map_deinit(&series);
}
