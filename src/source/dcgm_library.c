// SPDX-License-Identifier: Apache-2.0
// How it works: the table of dcgm_library.h is expanded twice, into the function pointers and here
// into the rows of the resolver. A library that was opened stays mapped: threads of it, and of the
// modules that it loads, run on after dcgmShutdown.
#include "source/dcgm_library.h"

#include <errno.h>
#include <string.h>

#include "base/dl.h"
#include "base/num.h"
#include "base/sv.h"
#include "source/dcgm_call.h"

static const char *const sonames[] = {"libdcgm.so.4", "libdcgm.so.3"};

// Behind the loader's own path: packages of distributions, tar balls, a host's folder in a
// container.
static const char *const search_dirs[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/dcgm/lib64",
    "/usr/local/dcgm/lib",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    NULL,
};

static const struct dl_symbol symbols[] = {
#define DCGM_SYMBOL(member, arguments, symbol)                                                     \
    {offsetof(struct dcgm_functions, member), {symbol}, (size_t)-1},
    DCGM_FUNCTIONS(DCGM_SYMBOL)
#undef DCGM_SYMBOL
        {offsetof(struct dcgm_functions, DcgmFieldGetById), {"DcgmFieldGetById"}, (size_t)-1},
};

// DCGM 4 first; the reason that counts is that of a library which is there.
static int search(void **out_handle, struct error *err)
{
    struct error why[ARRAY_SIZE(sonames)] = {0};
    int rc[ARRAY_SIZE(sonames)];
    for (size_t i = 0; i < ARRAY_SIZE(sonames); i++) {
        rc[i] = dl_open_global(sonames[i], search_dirs, out_handle, &why[i]);
        if (rc[i] == 0)
            return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(sonames); i++)
        if (rc[i] != -ENOENT)
            return error_set(err, rc[i], "%s", why[i].text);
    return error_set(err, -ENOENT,
                     "libdcgm.so.4 not found, nor libdcgm.so.3: DCGM is not installed here, or its "
                     "library is not in this container (--dcgm-library names it elsewhere)");
}

void dcgm_version_find(const dcgmVersionInfo_v2 *info, const char *key, char *out, size_t out_bytes)
{
    struct sv rest = {info->rawBuildInfoString,
                      strnlen(info->rawBuildInfoString, sizeof(info->rawBuildInfoString))};
    struct sv wanted = sv_from(key), pair;
    sv_copy(out, out_bytes, SV(""));
    while (sv_next(&rest, ';', &pair)) {
        size_t colon = sv_find_char(pair, ':');
        if (colon != (size_t)-1 && sv_equals(sv_trim(sv_sub(pair, 0, colon), " "), wanted)) {
            sv_copy(out, out_bytes, sv_trim(sv_sub(pair, colon + 1, pair.len), " "));
            return;
        }
    }
}

unsigned dcgm_version_major(const char *version)
{
    struct sv rest = sv_from(version), head;
    uint64_t major;
    return sv_next(&rest, '.', &head) && num_parse_u64(head, 0, 255, &major) == 0 ? (unsigned)major
                                                                                  : 0;
}

// What the library says of itself; one that says nothing is known by what it has.
static void read_version(struct dcgm *d)
{
    dcgmVersionInfo_v2 info = {.version = dcgmVersionInfo_version2};
    if (dcgm_call(d, dcgmVersionInfo, &info) == DCGM_ST_OK)
        dcgm_version_find(&info, "version", d->library_version, sizeof(d->library_version));
    memcpy(d->version, d->library_version, sizeof(d->version));
    d->major = dcgm_version_major(d->version);
    if (d->major == 0)
        d->major = d->fn.dcgmGetCpuHierarchy_v2 ? 4 : 3;
}

static int start(struct dcgm *d, struct error *err)
{
    if (!d->fn.dcgmInit || !d->fn.DcgmFieldGetById)
        return error_set(err, -ELIBBAD, "'%s' is not DCGM: it has no dcgmInit", d->path);
    dcgmReturn_t result = dcgm_call(d, dcgmInit);
    if (result != DCGM_ST_OK && result != DCGM_ST_ALREADY_INITIALIZED)
        return error_set(err, -EIO, "dcgmInit: %s (%d)", dcgm_result_text(result), result);
    read_version(d);
    if (d->major != 3 && d->major != 4)
        return error_set(err, -ELIBBAD, "DCGM %s is not known: majors 4 and 3 are", d->version);
    result = dcgm_call(d, DcgmFieldsInit);
    if (result < 0)
        return error_set(err, -EIO, "DcgmFieldsInit: %s (%d)", dcgm_result_text(result), result);
    return 0;
}

int dcgm_open(struct dcgm *d, const char *library, struct error *err)
{
    bool given = library && *library;
    // Its constructors run, and its file may lie on a server that is gone: as much a call as any.
    dcgm_call_enter(d, DCGM_NO_GPU, "dlopen", sizeof("dlopen"));
    int rc = given ? dl_open_global(library, NULL, &d->library, err) : search(&d->library, err);
    (void)dcgm_call_leave(d, DCGM_ST_OK);
    if (rc < 0) {
        d->library = NULL;
        return rc;
    }
    (void)dl_resolve(d->library, symbols, ARRAY_SIZE(symbols), &d->fn);
    dl_path(d->library, d->path, sizeof(d->path));
    rc = start(d, err);
    if (rc < 0)
        dcgm_close(d);
    return rc;
}

void dcgm_close(struct dcgm *d)
{
    if (d->major)
        (void)dcgm_call(d, dcgmShutdown);
    d->library = NULL;
    d->fn = (struct dcgm_functions){0};
    d->major = 0;
    d->path[0] = d->version[0] = d->library_version[0] = '\0';
}

const char *dcgm_result_text(dcgmReturn_t result)
{
    static const char *const texts[] = {
        [0] = "ok",
        [-DCGM_ST_BADPARAM] = "bad parameter",
        [-DCGM_ST_GENERIC_ERROR] = "unspecified error",
        [-DCGM_ST_MEMORY] = "out of memory",
        [-DCGM_ST_NOT_CONFIGURED] = "not configured",
        [-DCGM_ST_NOT_SUPPORTED] = "not supported",
        [-DCGM_ST_INIT_ERROR] = "initialisation failed",
        [-DCGM_ST_NVML_ERROR] = "NVML failed",
        [-DCGM_ST_PENDING] = "still going on",
        [-DCGM_ST_UNINITIALIZED] = "not initialised",
        [-DCGM_ST_TIMEOUT] = "timed out",
        [-DCGM_ST_VER_MISMATCH] = "versions differ",
        [-DCGM_ST_UNKNOWN_FIELD] = "unknown field",
        [-DCGM_ST_NO_DATA] = "no data",
        [-DCGM_ST_STALE_DATA] = "data too old",
        [-DCGM_ST_NOT_WATCHED] = "not watched",
        [-DCGM_ST_NO_PERMISSION] = "no permission",
        [-DCGM_ST_GPU_IS_LOST] = "GPU is lost",
        [-DCGM_ST_RESET_REQUIRED] = "GPU needs a reset",
        [-DCGM_ST_FUNCTION_NOT_FOUND] = "no such function",
        [-DCGM_ST_CONNECTION_NOT_VALID] = "connection not valid",
        [-DCGM_ST_GPU_NOT_SUPPORTED] = "GPU not supported",
        [-DCGM_ST_GROUP_INCOMPATIBLE] = "GPUs of a group differ",
        [-DCGM_ST_MAX_LIMIT] = "the engine's limit is reached",
        [-DCGM_ST_LIBRARY_NOT_FOUND] = "a library was not found",
        [-DCGM_ST_DUPLICATE_KEY] = "the name is taken",
        [-DCGM_ST_REQUIRES_ROOT] = "needs root",
        [-DCGM_ST_INSUFFICIENT_SIZE] = "too little room",
        [-DCGM_ST_FIELD_UNSUPPORTED_BY_API] = "the call does not know the field",
        [-DCGM_ST_MODULE_NOT_LOADED] = "a module of DCGM is not loaded",
        [-DCGM_ST_IN_USE] = "in use",
        [-DCGM_ST_GROUP_IS_EMPTY] = "the group is empty",
        [-DCGM_ST_PROFILING_NOT_SUPPORTED] = "profiling is not supported",
        [-DCGM_ST_PROFILING_LIBRARY_ERROR] = "the profiling library failed",
        [-DCGM_ST_PROFILING_MULTI_PASS] = "fields cannot be measured together",
        [-DCGM_ST_INSUFFICIENT_DRIVER_VERSION] = "the driver is too old",
        [-DCGM_ST_INSTANCE_NOT_FOUND] = "GPU instance not found",
        [-DCGM_ST_COMPUTE_INSTANCE_NOT_FOUND] = "compute instance not found",
        [-DCGM_ST_3RD_PARTY_LIBRARY_ERROR] = "a library of another failed",
        [-DCGM_ST_INSUFFICIENT_RESOURCES] = "too few resources",
        [-DCGM_ST_PAUSED] = "paused",
        [-DCGM_ST_ALREADY_INITIALIZED] = "already initialised",
        [-DCGM_ST_NVML_NOT_LOADED] = "NVML is not loaded",
        [-DCGM_ST_NVML_DRIVER_TIMEOUT] = "the driver does not answer",
        [-DCGM_ST_GPUS_DETACHED] = "GPUs are detached",
    };
    if (result > 0 || result <= -(int)ARRAY_SIZE(texts) || !texts[-result])
        return "unknown";
    return texts[-result];
}
