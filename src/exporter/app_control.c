// SPDX-License-Identifier: Apache-2.0
// Requests of the admin address. Pausing is DCGM's to do: its helper is told, and the client waits
// for what that answers, but not for long.
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define CONTROL_DEADLINE_NS (5 * NS_PER_S)

// --- Release, attach ---

// All helpers: an engine within one holds the driver too.
static int release(struct app *a, struct error *err)
{
    if (a->released)
        return error_set(err, -EALREADY, "the driver is already released");
    a->released = true;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        if (a->sources[i].process)
            (void)source_process_release(a->sources[i].process);
    return 0;
}

static int attach(struct app *a, struct error *err)
{
    if (!a->released)
        return error_set(err, -EALREADY, "the driver is already attached");
    a->released = false;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        if (a->sources[i].process)
            (void)source_process_attach(a->sources[i].process);
        // GPUs taken out while it was released are no evidence.
        inventory_forget_absent(&a->sources[i].inventory);
    }
    app_plan_progress(a, true);
    return 0;
}

// --- Pause, resume ---

static void finish(struct app *a, int result, const char *reason)
{
    if (!a->control_waits)
        return;
    a->control_waits = false;
    loop_timer_stop(a->control_late);
    admin_finish(a->admin, result, reason);
}

static void on_late(void *user)
{
    finish(user, -ETIMEDOUT, "DCGM did not answer within 5 s");
}

int app_control_init(struct app *a)
{
    return loop_timer_new(a->loop, on_late, a, &a->control_late);
}

void app_control_done(struct app *a, const struct frame_control_done *done)
{
    if (!a->control_waits || done->number != a->control_number)
        return; // it came too late
    finish(a, done->code == 0 ? 0 : -EIO, done->text[0] ? done->text : "DCGM refused");
}

void app_control_lost(struct app *a)
{
    finish(a, -ECONNRESET, "DCGM's process ended before it answered");
}

static int control(struct app *a, enum frame_command command, struct error *err)
{
    struct app_source *s = &a->sources[DEVICE_SOURCE_DCGM];
    if (!s->process || a->released)
        return error_set(err, -ENOTCONN, "DCGM is not in use");
    int r = source_process_control(s->process, command, ++a->control_number);
    if (r == -EBUSY)
        return error_set(err, r, "DCGM does not take what it is told");
    if (r < 0)
        return error_set(err, r, "DCGM is not in use: its process does not run");
    a->control_waits = true;
    loop_timer_set(a->control_late, CONTROL_DEADLINE_NS, 0);
    return ADMIN_LATER;
}

int app_on_admin(void *user, enum admin_command command, struct error *err)
{
    struct app *a = user;
    switch (command) {
    case ADMIN_RELOAD:
        return app_reload(a, "admin request", err);
    case ADMIN_RELEASE:
        return release(a, err);
    case ADMIN_ATTACH:
        return attach(a, err);
    case ADMIN_PAUSE:
        return control(a, FRAME_COMMAND_PAUSE, err);
    case ADMIN_RESUME:
        return control(a, FRAME_COMMAND_RESUME, err);
    }
    return error_set(err, -ENOSYS, "no such command");
}
