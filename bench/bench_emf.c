// SPDX-License-Identifier: Apache-2.0
// The agent's way from exposition text to events: a page of 8 GPUs in dcgm-exporter's form is taken
// again and again, with other values each time.
//   bench_emf [ROUNDS]   prints "SAMPLES_PER_CPU_SECOND EVENT_BYTES_PER_SAMPLE EVENTS"
#include <stdio.h>
#include <stdlib.h>

#include "agent/series.h"
#include "agent/sinks/emf.h"
#include "base/clock.h"
#include "base/num.h"

#define GPUS 8
#define FIELDS 26
#define PAGES 4 // different ones

static const char config[] =
    "{\"agent\": {\"omit_hostname\": true}, \"logs\": {\"metrics_collected\": {\"prometheus\": {"
    "\"cluster_name\": \"demo\", \"emf_processor\": {\"metric_declaration\": [{"
    "\"source_labels\": [\"job\"], \"label_matcher\": \"^dcgm$\", \"metric_selectors\": "
    "[\"^DCGM_FI_\"], \"dimensions\": [[\"ClusterName\",\"Namespace\",\"pod\",\"gpu\"],"
    "[\"ClusterName\"]]}, {\"source_labels\": [\"job\"], \"metric_selectors\": [\"FIELD_0\"], "
    "\"dimensions\": [[\"Hostname\",\"gpu\"]]}], \"metric_unit\": {\"DCGM_FI_DEV_FIELD_03\": "
    "\"Percent\"}}}}}}";
static const char jobs[] = "scrape_configs:\n- job_name: dcgm\n  honor_labels: true\n"
                           "  scrape_interval: 15s\n"
                           "  static_configs: [{targets: ['10.0.0.9:9400']}]\n"
                           "  metric_relabel_configs:\n"
                           "  - {source_labels: [namespace], target_label: Namespace}\n"
                           "  - {regex: modelName, action: labeldrop}\n";

static uint64_t bytes, events;

static void count_event(void *user, const struct emf_event *event)
{
    bytes += event->text.len;
    events++;
}

// Every fourth field is a counter, every third not whole.
static void make_page(struct buf *out, unsigned round)
{
    for (unsigned field = 0; field < FIELDS; field++) {
        buf_add_fmt(out,
                    "# HELP DCGM_FI_DEV_FIELD_%02u What it is.\n# TYPE DCGM_FI_DEV_FIELD_%02u %s\n",
                    field, field, field % 4 == 0 ? "counter" : "gauge");
        for (unsigned gpu = 0; gpu < GPUS; gpu++) {
            buf_add_fmt(out,
                        "DCGM_FI_DEV_FIELD_%02u{gpu=\"%u\",UUID=\"GPU-00000000-0000-0000-0000-"
                        "00000000000%u\",pci_bus_id=\"00000000:0%u:00.0\",device=\"nvidia%u\","
                        "modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"node-1\","
                        "DCGM_FI_DRIVER_VERSION=\"535.129.03\",container=\"main\","
                        "namespace=\"training\",pod=\"llm-%u\"} ",
                        field, gpu, gpu, gpu, gpu, gpu);
            unsigned value = 1000 * field + 37 * gpu + 11 * round;
            if (field % 3 == 1)
                buf_add_fmt(out, "%u.%03u\n", value, value % 1000);
            else
                buf_add_fmt(out, "%u\n", value);
        }
    }
}

// Of this process: other programs may have the machine, too.
static uint64_t cpu_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        abort();
    return clock_timespec_ns(t);
}

static double measure(struct series_table *table, unsigned rounds)
{
    struct buf pages[PAGES];
    for (unsigned i = 0; i < PAGES; i++) {
        pages[i] = BUF_INIT(1u << 20);
        make_page(&pages[i], i);
    }
    uint64_t start = 0;
    for (unsigned i = 0; i < rounds + PAGES; i++) {
        struct series_result result;
        if (i == PAGES) { // all series are known by then
            start = cpu_ns();
            bytes = events = 0;
        }
        if (series_table_take(table, buf_sv(&pages[i % PAGES]), PARSE_PROMETHEUS,
                              INT64_C(1767323040000) + i * 15000, 0, &result, NULL) < 0)
            abort();
    }
    double seconds = (double)(cpu_ns() - start) / (double)NS_PER_S;
    for (unsigned i = 0; i < PAGES; i++)
        buf_deinit(&pages[i]);
    return seconds;
}

int main(int argc, char **argv)
{
    uint64_t rounds = 20000;
    if (argc > 1 && num_parse_u64(sv_from(argv[1]), 1, 1000000000, &rounds) < 0)
        return 2;
    struct cw_text text = {SV(config), "config"};
    char *environment[] = {"RUN_IN_CONTAINER=True", NULL};
    struct cw_sources from = {.environment = environment};
    struct buf errors = BUF_INIT(1u << 16), warnings = BUF_INIT(1u << 16);
    struct cw_config *cw = NULL;
    struct prom_config *prom = NULL;
    struct emf *e = NULL;
    struct series_table *table = NULL;
    struct emf_options options = {.cluster = "demo", .event = count_event};
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels labels;
    labels_init(&labels, &arena);
    if (cw_config_parse(&text, 1, &from, &cw, &errors, &warnings) < 0 ||
        prom_config_parse(SV(jobs), "jobs", &prom, &errors) < 0 || emf_new(cw, &options, &e) < 0 ||
        labels_set(&labels, SV("instance"), SV("10.0.0.9:9400")) < 0 ||
        labels_set(&labels, SV("job"), SV("dcgm")) < 0)
        return 1;
    struct sink sink = emf_sink(e);
    struct series_options o = {&prom->jobs[0], &labels, 15 * NS_PER_S, &sink, 1};
    if (series_table_new(&o, &table) < 0)
        return 1;
    double seconds = measure(table, (unsigned)rounds);
    double samples = (double)rounds * GPUS * FIELDS;
    printf("%.0f %.0f %llu\n", samples / seconds, (double)bytes / samples,
           (unsigned long long)events);
    series_table_free(table);
    emf_free(e);
    cw_config_unref(cw);
    prom_config_unref(prom);
    arena_deinit(&arena);
    buf_deinit(&errors);
    buf_deinit(&warnings);
    return 0;
}
