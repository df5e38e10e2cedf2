// SPDX-License-Identifier: Apache-2.0
// What a page costs to render, devices' own time apart: bench_render [ROUNDS]. Prints per page:
// nanoseconds (median of ten runs), samples, bytes, and what making everything anew costs.
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "render_fixture.h"

#define RUNS 10

static int page(struct fixture *f, struct buf *out)
{
    const struct render_input in = fixture_input(f);
    buf_reset(out);
    return render_page(f->render, &in, TEXT_FORMAT_PROMETHEUS, out);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Median over RUNS of the mean of `rounds` pages; anew: as if the owners had changed before each.
static uint64_t page_ns(struct fixture *f, struct buf *out, unsigned rounds, bool anew)
{
    uint64_t runs[RUNS];
    for (unsigned run = 0; run < RUNS; run++) {
        uint64_t start_ns = clock_mono_ns();
        for (unsigned i = 0; i < rounds; i++) {
            f->owners.version += anew;
            if (page(f, out) < 0)
                abort();
        }
        runs[run] = (clock_mono_ns() - start_ns) / rounds;
    }
    qsort(runs, RUNS, sizeof(runs[0]), compare_u64);
    return runs[RUNS / 2];
}

static void measure(const char *what, struct fixture *f, unsigned rounds)
{
    struct buf out = BUF_INIT(LIMIT_PAGE_BYTES);
    fixture_fill(f);
    if (page(f, &out) < 0)
        abort();
    size_t device, all;
    render_counts(f->render, &device, &all);
    printf("%-28s %8llu ns a page, %8llu ns anew: %zu device samples, %zu in all, %zu bytes\n",
           what, (unsigned long long)page_ns(f, &out, rounds, false),
           (unsigned long long)page_ns(f, &out, rounds / 10 + 1, true), device, all, out.len);
    buf_deinit(&out);
}

static void own(struct fixture *f)
{
    static const char *const pods[] = {"train-5f7c8d9b6-abcde", "serve-7d9c8b5f4-fghij"};
    for (uint32_t i = 0; i < f->entity_count; i++)
        fixture_hold(f, i, "research", pods[i % 2], "main", NULL);
}

// Every catalogue field of the given levels, up to count of them.
static char *many_counters(size_t count)
{
    struct buf csv = BUF_INIT(1 << 20);
    for (size_t i = 0; i < field_table_count && count > 0; i++) {
        const struct field_info *f = &field_table[i];
        bool gpu = f->level == FIELD_LEVEL_GPU || f->level == FIELD_LEVEL_GPU_I ||
                   f->level == FIELD_LEVEL_GPU_CI;
        if (!gpu || (f->type != FIELD_I64 && f->type != FIELD_DOUBLE) || f->id >= FIELD_EXP_FIRST)
            continue;
        buf_add_fmt(&csv, "%s, gauge, some help text for this field\n", f->name);
        count--;
    }
    buf_add_char(&csv, '\0');
    return buf_take(&csv, NULL);
}

int main(int argc, char **argv)
{
    uint64_t rounds = 2000;
    if (argc > 1 && num_parse_u64(sv_from(argv[1]), 1, 1000000, &rounds) < 0)
        return 2;
    cleanup(fixture_freep) struct fixture *stock = fixture_new(fixture_stock_csv, "f");
    for (int i = 0; i < 8; i++)
        fixture_add_gpu(stock, "NVIDIA H100 80GB HBM3");
    fixture_list(stock);
    fixture_ready(stock, true);
    own(stock);
    measure("8 GPUs x 26 counters", stock, (unsigned)rounds);
    stock->options.podgpu_families = PODGPU_FAMILIES_NONE;
    stock->config.hash++;
    measure("the same without podgpu_gpu_", stock, (unsigned)rounds);

    char *csv = many_counters(120);
    cleanup(fixture_freep) struct fixture *mig = fixture_new(csv, "f");
    free(csv);
    for (int i = 0; i < 8; i++) {
        uint32_t gpu = fixture_add_gpu(mig, "NVIDIA H100 80GB HBM3");
        for (uint32_t n = 0; n < 7; n++)
            fixture_add_instance(mig, gpu, 7 + n, "1g.10gb");
    }
    fixture_list(mig);
    fixture_ready(mig, true);
    own(mig);
    measure("56 instances x 120 counters", mig, (unsigned)(rounds / 20 + 1));
    return 0;
}
