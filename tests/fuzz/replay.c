// SPDX-License-Identifier: Apache-2.0
// Replays a fuzz target's corpus: every file of the directory given, and every truncation of it up
// to 2,048 bytes.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_BYTES (1u << 20)
#define TRUNCATIONS 2048

// Hands over a copy of exactly that size, so that a read past the end is caught by the sanitizer.
static void replay(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    uint8_t *bytes = malloc(MOST_BYTES);
    if (!bytes)
        abort();
    size_t size = fread(bytes, 1, MOST_BYTES, f);
    fclose(f);
    replay(bytes, size);
    for (size_t cut = 0; cut < size && cut < TRUNCATIONS; cut++)
        replay(bytes, cut);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
        return 2;
    }
    DIR *d = opendir(argv[1]);
    if (!d) {
        perror(argv[1]);
        return 1;
    }
    int replayed = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[4096];
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (replay_file(path) < 0) {
            perror(path);
            return 1;
        }
        replayed++;
    }
    closedir(d);
    printf("%d inputs replayed\n", replayed);
    return replayed ? 0 : 1;
}
