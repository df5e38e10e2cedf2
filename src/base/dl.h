// SPDX-License-Identifier: Apache-2.0
// Vendor libraries, loaded at run time through a typed table: one row a function, each found on its
// own.
#pragma once

#include "base/error.h"
#include "base/macros.h"

// Where a symbol goes and by which names it is looked up, newest generation first.
struct dl_symbol {
    size_t offset;            // of the function pointer in the caller's table
    const char *names[4];     // tried in order; unused NULL
    size_t generation_offset; // of an unsigned char that gets 1-based index of the name found, 0 =
                              // absent; (size_t)-1: not wanted
};

// Where NVIDIA's driver puts its libraries, behind the loader's own path; NULL-ended:
// distributions, COS and GKE nodes, the GPU operator's driver container, WSL.
extern const char *const dl_driver_dirs[];

// Opens soname: as it is if it has a slash, else by the loader and then in each of dirs
// (NULL-ended). 0 and *out_handle; -ENOENT: not found, *err lists where it was looked for;
// -ELIBBAD: found but not loadable, *err has the loader's reason.
int must_use dl_open(const char *soname, const char *const *dirs, void **out_handle,
                     struct error *err);
// The same, with symbols resolved as they are used and offered to what the library itself loads.
int must_use dl_open_global(const char *soname, const char *const *dirs, void **out_handle,
                            struct error *err);
// Fills table; absent symbols become NULL. Returns how many were found.
unsigned dl_resolve(void *handle, const struct dl_symbol *symbols, size_t count, void *table);
// The file the loader took, into out; "" when it does not say.
void dl_path(void *handle, char *out, size_t out_bytes);
// Only when the library has no thread and no pointer of ours left; NULL is fine.
void dl_close(void *handle);
