// SPDX-License-Identifier: Apache-2.0
// Modules: what a PTX text says of itself, as the driver's compiler reads it. .version and .target
// must be what the driver and the device know; entries and the sizes of their parameters are kept.
#include "double.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda_module {
    const struct cuda_context *context;
    struct cuda_function *functions;
    struct cuda_module *next;
};

static struct cuda_module *modules;

// The compiler's log, into the buffer that the caller gave.
struct log {
    char *at;
    size_t room;
    void **written; // where the number of bytes goes
};

static void log_line(struct log *l, const char *text)
{
    if (!l->at || l->room == 0)
        return;
    int got = snprintf(l->at, l->room, "ptxas application ptx input; %s", text);
    size_t used = got < 0 ? 0 : (size_t)got < l->room ? (size_t)got : l->room - 1;
    if (l->written)
        *l->written = (void *)(uintptr_t)used;
}

static struct log find_log(unsigned int count, const int *options, void **values)
{
    struct log l = {0};
    for (unsigned int i = 0; options && values && i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            l.at = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            l.room = (size_t)(uintptr_t)values[i] & UINT32_MAX;
            l.written = &values[i];
        }
    }
    return l;
}

// --- PTX ---

static const char *skip_space(const char *at)
{
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        const char *end = at[0] != '/'   ? NULL
                          : at[1] == '/' ? strchr(at, '\n')
                          : at[1] == '*' ? strstr(at, "*/")
                                         : NULL;
        if (!end)
            return at;
        at = *end == '*' ? end + 2 : end;
    }
}

static bool is_word(const char *at, const char *word)
{
    size_t len = strlen(word);
    return strncmp(at, word, len) == 0 && (at[len] == '\0' || isspace((unsigned char)at[len]));
}

// The next place of a directive such as ".entry", after it; NULL: none.
static const char *find_directive(const char *at, const char *word)
{
    for (at = skip_space(at); *at; at = skip_space(at)) {
        if (is_word(at, word))
            return skip_space(at + strlen(word));
        while (*at && !isspace((unsigned char)*at))
            at++;
    }
    return NULL;
}

static unsigned read_number(const char **at)
{
    unsigned value = 0;
    for (; isdigit((unsigned char)**at) && value < 100000; (*at)++)
        value = value * 10 + (unsigned)(**at - '0');
    return value;
}

// The newest PTX that a driver's compiler knows, as major * 10 + minor, from its CUDA version.
static unsigned newest_ptx(unsigned cuda)
{
    static const struct {
        unsigned cuda, ptx;
    } table[] = {{13010, 91}, {13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85},
                 {12040, 84}, {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78},
                 {11070, 77}, {11060, 76}, {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72},
                 {11010, 71}, {11000, 70}, {10020, 65}, {10010, 64}, {10000, 63}, {9020, 62},
                 {9010, 61},  {9000, 60}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (cuda >= table[i].cuda)
            return table[i].ptx;
    }
    return 50;
}

static CUresult check_version(const struct call *c, const char *text, struct log *l)
{
    const char *at = find_directive(text, ".version");
    unsigned newest = newest_ptx(c->node->cuda_version);
    unsigned version = at ? read_number(&at) * 10 : 0;
    if (at && *at == '.') {
        at++;
        version += read_number(&at);
    }
    char line[120];
    if (version == 0) {
        log_line(l, "fatal   : Missing .version directive at start of file");
        return CUDA_ERROR_INVALID_PTX;
    }
    if (version <= newest)
        return CUDA_SUCCESS;
    (void)snprintf(line, sizeof(line),
                   "fatal   : Unsupported .version %u.%u; current version is '%u.%u'", version / 10,
                   version % 10, newest / 10, newest % 10);
    log_line(l, line);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

// sm_80 runs on 8.0 and later; sm_90a on 9.0 alone.
static CUresult check_target(const struct call *c, const char *text, struct log *l)
{
    const struct sim_gpu *g = &c->node->gpus[c->context->gpu];
    const char *at = find_directive(text, ".target");
    if (!at || strncmp(at, "sm_", 3) != 0) {
        log_line(l, "fatal   : Missing .target directive");
        return CUDA_ERROR_INVALID_PTX;
    }
    at += 3;
    unsigned target = read_number(&at), device = g->cc_major * 10 + g->cc_minor;
    if (*at == 'a' ? target == device : target <= device)
        return CUDA_SUCCESS;
    log_line(l,
             "fatal   : SM version specified by .target is higher than default SM version assumed");
    return CUDA_ERROR_INVALID_PTX;
}

// ".param .u64 .ptr .global name", ".param .align 8 .b8 name[16]": its size.
static uint8_t parameter_bytes(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (at[0] == '.' && strchr("usbf", at[1]) && isdigit((unsigned char)at[2])) {
            const char *digits = at + 2;
            return (uint8_t)(read_number(&digits) / 8);
        }
    }
    return 8;
}

// `at` is behind ".entry": NAME ( .param ..., .param ... )
static bool read_entry(const char *at, struct cuda_function *f)
{
    size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%");
    if (len == 0 || len >= sizeof(f->name))
        return false;
    memcpy(f->name, at, len);
    f->name[len] = '\0';
    at = skip_space(at + len);
    if (*at != '(')
        return true; // no parameters
    const char *end = strchr(at, ')');
    while (end && (at = strstr(at, ".param")) && at < end) {
        const char *next = at + strcspn(at, ",)");
        if (f->parameters == CUDA_MAX_PARAMETERS)
            return false;
        f->bytes[f->parameters++] = parameter_bytes(at + 6, next);
        at = next;
    }
    return end != NULL;
}

static void free_module(struct cuda_module *m)
{
    while (m && m->functions) {
        struct cuda_function *f = m->functions;
        m->functions = f->next;
        free(f);
    }
    free(m);
}

static CUresult read_module(const struct call *c, const char *text, struct cuda_module *m,
                            struct log *l)
{
    CUresult code = check_version(c, text, l);
    if (code == CUDA_SUCCESS)
        code = check_target(c, text, l);
    const char *at = text;
    while (code == CUDA_SUCCESS && (at = find_directive(at, ".entry"))) {
        struct cuda_function *f = calloc(1, sizeof(*f));
        if (!f)
            return CUDA_ERROR_OUT_OF_MEMORY;
        f->module = m;
        f->next = m->functions;
        m->functions = f;
        if (!read_entry(at, f)) {
            log_line(l, "fatal   : Parsing error near '.entry': syntax error");
            code = CUDA_ERROR_INVALID_PTX;
        }
    }
    return code;
}

API(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int count, int *options,
    void **values)
{
    CALL_CONTEXT();
    NEED(module);
    NEED(image);
    struct log l = find_log(count, options, values);
    if (l.at && l.room > 0)
        l.at[0] = '\0';
    if (memcmp(image,
               "\x7f"
               "ELF",
               4) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU; // machine code, of which the double has no use
    struct cuda_module *m = calloc(1, sizeof(*m));
    CUresult code = m ? read_module(&c, image, m, &l) : CUDA_ERROR_OUT_OF_MEMORY;
    if (code != CUDA_SUCCESS) {
        free_module(m);
        return code;
    }
    m->context = c.context;
    cuda_lock();
    m->next = modules;
    modules = m;
    cuda_unlock();
    *module = m;
    return CUDA_SUCCESS;
}

API(cuModuleUnload, CUmodule module)
{
    CALL_CONTEXT();
    CUresult code = CUDA_ERROR_INVALID_HANDLE;
    cuda_lock();
    for (struct cuda_module **link = &modules; *link; link = &(*link)->next) {
        if (*link == module) {
            *link = module->next;
            free_module(module);
            code = CUDA_SUCCESS;
            break;
        }
    }
    cuda_unlock();
    return code;
}

API(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name)
{
    CALL_CONTEXT();
    NEED(function);
    NEED(name);
    if (!module || module->context != c.context)
        return CUDA_ERROR_INVALID_HANDLE;
    for (struct cuda_function *f = module->functions; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            *function = f;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}
