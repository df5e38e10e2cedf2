// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program under test: counts its memory allocations in the file named by
// MALLOC_COUNT (8 bytes, a native uint64_t), so that a test can assert that a scrape causes none.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static _Atomic uint64_t *counter;

__attribute__((constructor)) static void map_counter(void)
{
    const char *path = getenv("MALLOC_COUNT");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        counter = page;
}

static void count(void)
{
    if (counter)
        atomic_fetch_add(counter, 1);
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    count();
    return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t size)
{
    count();
    return __libc_realloc(old, size);
}
