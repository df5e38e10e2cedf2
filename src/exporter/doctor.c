// SPDX-License-Identifier: Apache-2.0
// How it works: everything that has to be waited for is started at once on one loop; each
// LOOK_AGAIN_NS it is seen whether all of it has settled. Then, or when the time is up, the report
// is made in one go from what is known. So the order never changes, and nothing that hangs (each
// room has its own deadline) holds it up.
#include "exporter/doctor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/process.h"
#include "exporter/doctor_internal.h"

#define LOOK_AGAIN_NS (50 * NS_PER_MS)

// The rooms log what the report says better; whoever wants it all gives --debug.
static void silence_log(const struct exporter_options *o)
{
    if (o->log_level == LOG_LEVEL_DEBUG)
        return;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)dup2(fd, STDERR_FILENO);
    (void)close(fd);
    log_setup(o->log_format, LOG_LEVEL_ERROR);
}

static void on_timer(void *user)
{
    struct doctor *d = user;
    uint64_t now_ns = clock_mono_ns();
    bool settled = doctor_sources_settle(d, now_ns);
    settled = doctor_kube_settle(d) && settled;
    if (settled || now_ns - d->started_ns >= DOCTOR_MOST_NS)
        loop_stop(d->loop, 0);
}

static void load_configuration(struct doctor *d)
{
    struct error err = ERROR_INIT;
    if (exporter_config_load(d->options, &d->config, &err) < 0)
        (void)error_text(&err, d->config_error, sizeof(d->config_error));
}

// Owners, and devices that were asked for and are not there, as a page has them.
static void make_page(struct doctor *d)
{
    uint64_t now_ns = clock_mono_ns();
    if (!d->config || !d->publisher)
        return;
    publisher_set_pods(d->publisher, d->rows);
    if (publisher_publish(d->publisher, d->config, &d->view, &d->self, now_ns) < 0)
        d->failed = true; // without memory nothing that follows can be trusted
}

static int gather(struct doctor *d)
{
    int r = loop_new(&d->loop);
    if (r == 0)
        r = loop_timer_new(d->loop, on_timer, d, &d->timer);
    if (r == 0)
        r = publisher_new(d->options, &d->publisher);
    if (r == 0)
        r = doctor_kube_start(d);
    if (r < 0)
        return r;
    doctor_sources_start(d);
    loop_timer_set(d->timer, 0, LOOK_AGAIN_NS);
    (void)loop_run(d->loop);
    make_page(d);
    return 0;
}

static void clean_up(struct doctor *d)
{
    doctor_kube_end(d);
    doctor_sources_end(d);
    publisher_free(d->publisher);
    pod_metadata_free(d->metadata);
    pod_devices_unref(d->rows);
    loop_timer_free(d->timer);
    loop_free(d->loop);
    exporter_config_unref(d->config);
}

static void judge(struct doctor *d, int gathered)
{
    static const struct doctor_fault fault = {DOCTOR_FAIL, "all checks",
                                              "give the container more memory and descriptors"};
    if (gathered < 0) {
        doctor_fault(d, "doctor", &fault, "cannot look: %s", strerror(-gathered));
        return;
    }
    doctor_judge_configuration(d);
    doctor_judge_gpus(d);
    doctor_judge_kube(d);
    doctor_judge_processes(d);
    doctor_judge_http(d);
}

int doctor_run(const struct exporter_options *options)
{
    struct doctor *d = calloc(1, sizeof(*d));
    if (!d)
        return 1;
    silence_log(options);
    (void)process_raise_fd_limit(LIMIT_DESCRIPTORS);
    d->options = options;
    d->started_ns = clock_mono_ns();
    doctor_sources_init(d);
    load_configuration(d);
    judge(d, gather(d));
    int status = d->failed ? 1 : 0;
    clean_up(d);
    free(d);
    return process_finish_stdout() ? status : 1;
}
