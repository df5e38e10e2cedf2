// SPDX-License-Identifier: Apache-2.0
#include "base/dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sv.h"

const char *const dl_driver_dirs[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/usr/lib/wsl/lib",
    NULL,
};

// Tries one name. -ENOENT when the file itself is not there: the loader says "NAME: cannot open
// shared object file: No such file" both for it and for a missing dependency, but names what it
// missed.
static int try_open(const char *name, int flags, void **out_handle, struct error *err)
{
    void *handle = dlopen(name, flags);
    if (handle) {
        *out_handle = handle;
        return 0;
    }
    const char *reason = dlerror();
    struct sv text = sv_from(reason ? reason : "unknown loader error");
    char missing[4096 + 64];
    (void)snprintf(missing, sizeof(missing), "%s: cannot open shared object file: No such file",
                   name);
    if (sv_starts_with(text, sv_from(missing)))
        return -ENOENT;
    return error_set(err, -ELIBBAD, "cannot load '%s': %.*s", name, SV_FMT(text));
}

static int open_with(int flags, const char *soname, const char *const *dirs, void **out_handle,
                     struct error *err)
{
    int r = try_open(soname, flags, out_handle, err);
    if (r != -ENOENT)
        return r;
    if (strchr(soname, '/') && access(soname, F_OK) == 0) // the loader passes such a one over
        return error_set(
            err, -ELIBBAD,
            "cannot load '%s': it is made for another architecture, or misses a library", soname);
    if (strchr(soname, '/'))
        return error_set(err, -ENOENT, "'%s' does not exist", soname);
    char tried[384] = "";
    size_t used = 0;
    for (size_t i = 0; dirs && dirs[i]; i++) {
        char path[4096];
        int length = snprintf(path, sizeof(path), "%s/%s", dirs[i], soname);
        if (length < 0 || (size_t)length >= sizeof(path))
            continue;
        r = try_open(path, flags, out_handle, err);
        if (r != -ENOENT)
            return r;
        int more = snprintf(tried + used, sizeof(tried) - used, ", %s", dirs[i]);
        used = more < 0 || (size_t)more >= sizeof(tried) - used ? sizeof(tried) - 1
                                                                : used + (size_t)more;
    }
    return error_set(err, -ENOENT, "'%s' not found (looked in the loader's path%s)", soname, tried);
}

int dl_open(const char *soname, const char *const *dirs, void **out_handle, struct error *err)
{
    // The vendor's library stays out of the global scope: its symbols are used through the table
    // alone.
    return open_with(RTLD_NOW | RTLD_LOCAL, soname, dirs, out_handle, err);
}

int dl_open_global(const char *soname, const char *const *dirs, void **out_handle,
                   struct error *err)
{
    return open_with(RTLD_LAZY | RTLD_GLOBAL, soname, dirs, out_handle, err);
}

static void *find_symbol(void *handle, const struct dl_symbol *symbol,
                         unsigned char *out_generation)
{
    for (unsigned char i = 0; i < ARRAY_SIZE(symbol->names); i++) {
        void *address = symbol->names[i] ? dlsym(handle, symbol->names[i]) : NULL;
        if (!address)
            continue;
        *out_generation = (unsigned char)(i + 1);
        return address;
    }
    *out_generation = 0;
    return NULL;
}

unsigned dl_resolve(void *handle, const struct dl_symbol *symbols, size_t count, void *table)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned char generation;
        void *address = find_symbol(handle, &symbols[i], &generation);
        // POSIX dlsym: a function pointer has the representation of the object pointer.
        memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
        if (symbols[i].generation_offset != (size_t)-1)
            ((unsigned char *)table)[symbols[i].generation_offset] = generation;
        found += address != NULL;
    }
    return found;
}

void dl_path(void *handle, char *out, size_t out_bytes)
{
    struct link_map *map = NULL;
    bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map;
    sv_copy(out, out_bytes, sv_from(known ? map->l_name : ""));
}

void dl_close(void *handle)
{
    if (handle)
        (void)dlclose(handle);
}
