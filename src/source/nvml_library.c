// SPDX-License-Identifier: Apache-2.0
// How it works: the table of nvml_library.h is expanded three times, into the function pointers,
// into the generation bytes beside them and here into the rows of the resolver. dl_close happens
// only after nvmlShutdown (or when nvmlInit never succeeded), when the library has no thread and no
// descriptor left in this process.
#include "source/nvml_library.h"

#include <errno.h>
#include <string.h>

#include "base/dl.h"
#include "base/sv.h"
#include "source/nvml_call.h"

#define SONAME "libnvidia-ml.so.1"

static const struct dl_symbol symbols[] = {
#define NVML_SYMBOL(member, arguments, ...)                                                        \
    {offsetof(struct nvml_functions, member),                                                      \
     {__VA_ARGS__},                                                                                \
     offsetof(struct nvml_functions, generation.member)},
    NVML_FUNCTIONS(NVML_SYMBOL)
#undef NVML_SYMBOL
};

int nvml_open(struct nvml *n, const char *library, struct error *err)
{
    bool given = library && *library;
    // Its constructors run, and its file may lie on a server that is gone: as much a call as any.
    nvml_call_enter(n, NVML_NO_GPU, "dlopen", sizeof("dlopen"));
    int rc = dl_open(given ? library : SONAME, given ? NULL : dl_driver_dirs, &n->handle, err);
    (void)nvml_call_leave(n, NVML_SUCCESS);
    if (rc < 0)
        n->handle = NULL;
    // The folders that were tried would fill the line; what is wrong is nearly always one of these.
    if (rc == -ENOENT && !given)
        return error_set(err, rc,
                         SONAME " not found: no NVIDIA driver is installed here, or its library is "
                                "not in this container (--nvml-library names it elsewhere)");
    if (rc < 0)
        return rc;
    (void)dl_resolve(n->handle, symbols, ARRAY_SIZE(symbols), &n->fn);
    dl_path(n->handle, n->path, sizeof(n->path));
    return 0;
}

nvmlReturn_t nvml_init(struct nvml *n)
{
    // Without GPUs there is nothing to show but nothing wrong either: they may be bound to the
    // driver later.
    nvmlReturn_t result = nvml_call(n, NVML_NO_GPU, nvmlInitWithFlags, NVML_INIT_FLAG_NO_GPUS);
    if (result == NVML_ERROR_FUNCTION_NOT_FOUND || result == NVML_ERROR_INVALID_ARGUMENT)
        result = nvml_call(n, NVML_NO_GPU, nvmlInit);
    n->initialised = result == NVML_SUCCESS;
    return result;
}

void nvml_shutdown(struct nvml *n)
{
    if (n->initialised)
        (void)nvml_call(n, NVML_NO_GPU, nvmlShutdown);
    n->initialised = false;
}

void nvml_close(struct nvml *n)
{
    nvml_shutdown(n);
    nvml_call_enter(n, NVML_NO_GPU, "dlclose", sizeof("dlclose"));
    dl_close(n->handle);
    (void)nvml_call_leave(n, NVML_SUCCESS);
    n->handle = NULL;
    n->fn = (struct nvml_functions){0};
    n->memory_first_generation = n->memory_second_generation = false;
    memset(n->gpm_refused, 0, sizeof(n->gpm_refused));
    n->path[0] = '\0';
}
