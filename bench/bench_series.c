// SPDX-License-Identifier: Apache-2.0
// What a sample costs from the text of a page to the sinks: bench_series PAGE-FILE. The pages are
// those of a node with 1, 8 and 64 GPUs, each with the families of the file, which has one. Prints,
// per page: nanoseconds of CPU a sample (the best run: what else runs on the machine slows the
// others) with a sink that adds values up, that of the parser alone, that of a page whose series
// are all new, and bytes a series.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/series.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#define RUNS 40
#define RUN_SAMPLES 100000
#define PAGE_MOST (64u << 20)

static double total;

static int target_new(void *sink, const struct sink_target *target, void **out)
{
    *out = sink;
    return 0;
}

static void target_free(void *target)
{
}

static int series_new(void *target, const struct sink_series *s, void **out)
{
    *out = s->is_internal ? NULL : target;
    return 0;
}

static void series_free(void *target, void *series)
{
}

static void begin(void *target, int64_t scrape_ms)
{
}

static void sample(void *target, void *series, double value, int64_t timestamp_ms)
{
    total += value;
}

static void stale(void *target, void *series)
{
}

static int end(void *target)
{
    return 0;
}

static const struct sink_ops null_ops = {
    .target_new = target_new,
    .target_free = target_free,
    .series_new = series_new,
    .series_free = series_free,
    .begin = begin,
    .sample = sample,
    .stale = stale,
    .end = end,
};

// CPU time of our own: others may share the machine.
static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return clock_timespec_ns(t);
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_series: %s\n", what);
    exit(1);
}

// Appends line with each `gpu="0"` numbered anew; the copies differ in the UUID, too.
static void add_line(struct buf *out, struct sv line, unsigned gpu)
{
    size_t at = sv_find(line, SV("gpu=\"0\",UUID=\"GPU-ff"));
    if (at == (size_t)-1) {
        buf_add_sv(out, line);
        return;
    }
    buf_add_sv(out, sv_sub(line, 0, at));
    buf_add_fmt(out, "gpu=\"%u\",UUID=\"GPU-%02x", gpu, gpu);
    buf_add_sv(out, sv_sub(line, at + strlen("gpu=\"0\",UUID=\"GPU-ff"), line.len));
}

static void make_page(struct buf *out, struct sv one, unsigned gpus)
{
    struct sv line;
    buf_reset(out);
    while (sv_next(&one, '\n', &line)) {
        bool is_sample = line.len && line.ptr[0] != '#';
        for (unsigned gpu = 0; gpu < (is_sample ? gpus : 1); gpu++) {
            add_line(out, line, gpu);
            buf_add_char(out, '\n');
        }
    }
    must(!out->error, "page too long");
}

static struct series_table *new_table(const struct prom_job *job, const struct labels *labels)
{
    static int sink;
    const struct sink sinks[] = {{&null_ops, &sink}};
    const struct series_options o = {
        .job = job, .labels = labels, .interval_ns = NS_PER_S, .sinks = sinks, .sink_count = 1};
    struct series_table *t;
    must(series_table_new(&o, &t) == 0, "out of memory");
    return t;
}

static uint64_t take(struct series_table *t, struct sv page)
{
    struct series_result result;
    must(series_table_take(t, page, PARSE_PROMETHEUS, 1000, 0, &result, NULL) == 0, "bad page");
    return result.scraped;
}

static uint64_t parse(struct sv page)
{
    struct parser p;
    struct parse_sample s;
    uint64_t samples = 0;
    parser_init(&p, page, PARSE_PROMETHEUS);
    while (parser_next(&p, &s, NULL) == 1)
        samples++;
    parser_deinit(&p);
    return samples;
}

enum what {
    KNOWN, // each page again
    ALL_NEW,
    PARSER_ALONE,
};

static double ns_a_sample(const struct prom_job *job, const struct labels *labels, struct sv page,
                          enum what what)
{
    double best = 1e9;
    struct series_table *t = new_table(job, labels);
    (void)take(t, page);
    for (unsigned run = 0; run < RUNS; run++) {
        uint64_t samples = 0, start_ns = cpu_ns();
        while (samples < RUN_SAMPLES) {
            if (what == ALL_NEW) {
                series_table_free(t);
                t = new_table(job, labels);
            }
            samples += what == PARSER_ALONE ? parse(page) : take(t, page);
        }
        double ns = (double)(cpu_ns() - start_ns) / (double)samples;
        best = ns < best ? ns : best;
    }
    series_table_free(t);
    return best;
}

// Of the table alone; what a page leaves for the next is not counted twice.
static double bytes_a_series(const struct prom_job *job, const struct labels *labels,
                             struct sv page)
{
    enum { TABLES = 64 };
    struct series_table *tables[TABLES];
    size_t series = 0, before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (size_t i = 0; i < TABLES; i++) {
        tables[i] = new_table(job, labels);
        (void)take(tables[i], page);
        series += series_table_count(tables[i]);
    }
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (size_t i = 0; i < TABLES; i++)
        series_table_free(tables[i]);
    return (double)(after - before) / (double)series;
}

int main(int argc, char **argv)
{
    static char name[] = "dcgm";
    const struct prom_job job = {.name = name, .honor_timestamps = true};
    static const unsigned gpus[] = {1, 8, 64};
    struct buf file = BUF_INIT(PAGE_MOST), page = BUF_INIT(PAGE_MOST);
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels labels;
    must(argc == 2, "usage: bench_series PAGE-FILE");
    must(file_read(argv[1], &file, NULL) == 0, "no such page");
    labels_init(&labels, &arena);
    must(labels_set(&labels, SV("instance"), SV("10.0.0.9:9400")) == 0 &&
             labels_set(&labels, SV("job"), SV("dcgm")) == 0,
         "out of memory");
    for (size_t i = 0; i < ARRAY_SIZE(gpus); i++) {
        make_page(&page, buf_sv(&file), gpus[i]);
        struct sv text = buf_sv(&page);
        double known = ns_a_sample(&job, &labels, text, KNOWN);
        double parser = ns_a_sample(&job, &labels, text, PARSER_ALONE);
        double all_new = ns_a_sample(&job, &labels, text, ALL_NEW);
        double bytes = bytes_a_series(&job, &labels, text);
        printf("gpus=%u samples=%llu page_bytes=%zu known_ns=%.1f parser_ns=%.1f new_ns=%.0f "
               "series_bytes=%.1f\n",
               gpus[i], (unsigned long long)parse(text), text.len, known, parser, all_new, bytes);
    }
    buf_deinit(&file);
    buf_deinit(&page);
    arena_deinit(&arena);
    return total > 0 ? 0 : 1;
}
