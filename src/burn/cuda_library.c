// SPDX-License-Identifier: Apache-2.0
// How it works: CUDA_FUNCTIONS is expanded into the table of pointers and here into the rows of the
// resolver. All are needed: a library that lacks one is no libcuda of CUDA 6 or later. The library
// is never closed once it was initialised: its threads would run on in what is no longer there.
#include "burn/cuda_library.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/dl.h"
#include "base/num.h"
#include "base/sv.h"

#define SONAME "libcuda.so.1"
#define BARE_NAME "libcuda.so" // where an image or a host has only the link of development
#define UUID_LEAST_DIGITS 8

static const struct dl_symbol symbols[] = {
#define CUDA_SYMBOL(member, arguments, ...)                                                        \
    {offsetof(struct cuda_functions, member), {__VA_ARGS__}, (size_t)-1},
    CUDA_FUNCTIONS(CUDA_SYMBOL)
#undef CUDA_SYMBOL
};

int cuda_check(const struct cuda *c, CUresult result, const char *call, struct error *err)
{
    if (result == CUDA_SUCCESS)
        return 0;
    if (err->text[0])
        return CUDA_FAILED;
    const char *name = NULL, *text = NULL;
    (void)c->fn.cuGetErrorName(result, &name);
    (void)c->fn.cuGetErrorString(result, &text);
    if (name)
        (void)error_set(err, -EIO, "%s: %s (%s)", call, text ? text : "no reason given", name);
    else
        (void)error_set(err, -EIO, "%s: error %d", call, result);
    return CUDA_FAILED;
}

static int load(struct cuda *c, const char *library, struct error *err)
{
    bool given = library && *library;
    int rc = dl_open(given ? library : SONAME, given ? NULL : dl_driver_dirs, &c->handle, err);
    if (rc == -ENOENT && !given)
        rc = dl_open(BARE_NAME, dl_driver_dirs, &c->handle, err);
    if (rc < 0)
        c->handle = NULL;
    // The folders that were tried would fill the line; what is wrong is nearly always one of these.
    if (rc == -ENOENT && !given)
        (void)error_set(err, rc,
                        SONAME " not found: no NVIDIA driver is installed here, or its library is "
                               "not in this container (--cuda-library names it elsewhere)");
    if (rc < 0)
        return CUDA_FAILED;
    if (dl_resolve(c->handle, symbols, ARRAY_SIZE(symbols), &c->fn) == ARRAY_SIZE(symbols))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
        void *function;
        memcpy(&function, (char *)&c->fn + symbols[i].offset, sizeof(function));
        if (function)
            continue;
        char path[256];
        dl_path(c->handle, path, sizeof(path));
        (void)error_set(err, -ELIBBAD, "'%s' has no %s: it is not the driver's library, or too old",
                        path, symbols[i].names[0]);
        break;
    }
    return CUDA_FAILED;
}

int cuda_open(struct cuda *c, const char *library, struct error *err)
{
    *c = (struct cuda){0};
    int rc = load(c, library, err);
    if (rc != 0) {
        dl_close(c->handle);
        c->handle = NULL;
        return rc;
    }
    CUresult result = c->fn.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        (void)error_set(err, -ENODEV, "the driver shows no GPU here");
        return CUDA_NO_GPU;
    }
    if (cuda_check(c, result, "cuInit", err) != 0)
        return CUDA_FAILED;
    return cuda_call(c, err, cuDriverGetVersion, &c->version);
}

void cuda_close(struct cuda *c)
{
    *c = (struct cuda){0};
}

int cuda_gpu_count(const struct cuda *c, int *out_count, struct error *err)
{
    int count = 0;
    if (cuda_call(c, err, cuDeviceGetCount, &count) != 0)
        return CUDA_FAILED;
    if (count <= 0) {
        (void)error_set(err, -ENODEV, "the driver shows no GPU here");
        return CUDA_NO_GPU;
    }
    *out_count = count;
    return 0;
}

// Of a MIG device the older call tells the UUID of its GPU, the newer one its own.
static int read_uuid(const struct cuda *c, CUdevice device, char *out, size_t out_bytes,
                     struct error *err)
{
    CUuuid board, own;
    if (cuda_call(c, err, cuDeviceGetUuid, &board, device) != 0 ||
        cuda_call(c, err, cuDeviceGetUuid_v2, &own, device) != 0)
        return CUDA_FAILED;
    bool mig = memcmp(&board, &own, sizeof(own)) != 0;
    const unsigned char *b = own.bytes;
    (void)snprintf(out, out_bytes,
                   "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
                   b[10], b[11], b[12], b[13], b[14], b[15]);
    return 0;
}

int cuda_gpu_read(const struct cuda *c, int index, struct cuda_gpu *out, struct error *err)
{
    struct cuda_gpu g = {.index = index};
    if (cuda_call(c, err, cuDeviceGet, &g.device, index) != 0 ||
        cuda_call(c, err, cuDeviceGetName, g.name, (int)sizeof(g.name) - 1, g.device) != 0 ||
        cuda_call(c, err, cuDeviceTotalMem, &g.memory_bytes, g.device) != 0 ||
        cuda_call(c, err, cuDeviceGetAttribute, &g.multiprocessors,
                  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g.device) != 0 ||
        cuda_call(c, err, cuDeviceGetAttribute, &g.major,
                  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g.device) != 0 ||
        cuda_call(c, err, cuDeviceGetAttribute, &g.minor,
                  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g.device) != 0 ||
        read_uuid(c, g.device, g.uuid, sizeof(g.uuid), err) != 0)
        return CUDA_FAILED;
    *out = g;
    return 0;
}

static bool uuid_matches(const struct cuda_gpu *g, const char *uuid)
{
    size_t length = strlen(uuid);
    return length >= sizeof("GPU-") - 1 + UUID_LEAST_DIGITS &&
           strncasecmp(g->uuid, uuid, length) == 0;
}

static int find_by_uuid(const struct cuda *c, const char *uuid, int count, struct cuda_gpu *out,
                        struct error *err)
{
    for (int i = 0; i < count; i++) {
        struct cuda_gpu g;
        if (cuda_gpu_read(c, i, &g, err) != 0)
            return CUDA_FAILED;
        if (uuid_matches(&g, uuid)) {
            *out = g;
            return 0;
        }
    }
    (void)error_set(err, -ENODEV,
                    strncasecmp(uuid, "MIG-", 4) == 0
                        ? "no MIG device '%s' here: a process sees the one that "
                          "CUDA_VISIBLE_DEVICES names"
                        : "no GPU '%s' here",
                    uuid);
    return CUDA_NO_GPU;
}

int cuda_gpu_find(const struct cuda *c, const char *gpu, struct cuda_gpu *out, struct error *err)
{
    int count;
    int rc = cuda_gpu_count(c, &count, err);
    if (rc != 0)
        return rc;
    uint64_t index;
    if (num_parse_u64(sv_from(gpu), 0, (uint64_t)count - 1, &index) == 0)
        return cuda_gpu_read(c, (int)index, out, err);
    if (strncasecmp(gpu, "GPU-", 4) == 0 || strncasecmp(gpu, "MIG-", 4) == 0)
        return find_by_uuid(c, gpu, count, out, err);
    (void)error_set(err, -ENODEV, "no GPU '%s' here: there %s %d, numbered from 0", gpu,
                    count == 1 ? "is" : "are", count);
    return CUDA_NO_GPU;
}
