// SPDX-License-Identifier: Apache-2.0
// How it works: each address is first reached by a connect of our own (dcgm_reach.h), which is what
// tells that nobody listens; only where somebody does, libdcgm is asked to connect, and the link
// stands when the engine has told its version. The forms with :// go to dcgmConnect_v3 where the
// library has it, and in what dcgmConnect_v2 takes otherwise.
#include "source/dcgm_engine.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/process.h"
#include "source/dcgm_call.h"
#include "source/dcgm_reach.h"
#include "source/source.h"

#define CONNECT_TIMEOUT_MS 3000
#define REACH_TIMEOUT_MS 1000
#define OOM_SCORE_EMBEDDED 1000 // an engine has hundreds of MB: the first to go

// Modules that an engine of ours has no use for, by their number in dcgmModuleId_t: policy, config,
// diagnostics.
static const unsigned denied_modules[] = {5, 6, 7};

// One attempt: where it stands, and what is told of each address.
struct attempt {
    struct dcgm *d;
    unsigned timeout_ms;
    bool somebody; // listens at an address, or may
    enum frame_state_code code;
    dcgmReturn_t result;
    char *text;
    size_t text_bytes;
};

// Adds "ADDRESS: reason" to the text; the first failure's code stands.
static void fail(struct attempt *t, enum frame_state_code code, dcgmReturn_t result,
                 const char *address, const char *reason)
{
    size_t used = strlen(t->text);
    if (t->code == FRAME_STATE_READY || (t->code == FRAME_STATE_FAILED && code != t->code)) {
        t->code = code;
        t->result = result;
    }
    (void)snprintf(t->text + used, t->text_bytes - used, "%s%s: %s", used ? "; " : "", address,
                   reason);
}

void dcgm_engine_close(struct dcgm *d)
{
    if (d->engine && d->embedded)
        (void)dcgm_call(d, dcgmStopEmbedded, d->engine);
    else if (d->engine)
        (void)dcgm_call(d, dcgmDisconnect, d->engine);
    if (d->embedded)
        process_set_oom_score_adj(SOURCE_OOM_SCORE);
    d->engine = 0;
    d->embedded = d->lost = false;
    d->address[0] = '\0';
    memcpy(d->version, d->library_version, sizeof(d->version));
}

// A connect may say OK without a link behind it.
static dcgmReturn_t prove(struct dcgm *d)
{
    dcgmVersionInfo_v2 info = {.version = dcgmVersionInfo_version2};
    dcgmReturn_t result = dcgm_call(d, dcgmHostengineVersionInfo, d->engine, &info);
    if (result == DCGM_ST_OK) {
        dcgm_version_find(&info, "version", d->version, sizeof(d->version));
        return result;
    }
    if (result != DCGM_ST_FUNCTION_NOT_FOUND && result != DCGM_ST_NOT_SUPPORTED)
        return result;
    unsigned int ids[DCGM_MAX_NUM_DEVICES];
    int count = 0;
    return dcgm_call(d, dcgmGetAllDevices, d->engine, ids, &count);
}

static dcgmReturn_t connect_plain(struct attempt *t, const struct dcgm_address *a)
{
    struct dcgm *d = t->d;
    dcgmConnectV2Params_v2 params = {
        .version = dcgmConnectV2Params_version2,
        .timeoutMs = t->timeout_ms,
        .addressIsUnixSocket = a->kind == DCGM_ADDRESS_UNIX,
    };
    return dcgm_call(d, dcgmConnect_v2, a->plain, &params, &d->engine);
}

static dcgmReturn_t connect_engine(struct attempt *t, const struct dcgm_address *a)
{
    struct dcgm *d = t->d;
    if (!a->is_uri || (!d->fn.dcgmConnect_v3 && a->kind != DCGM_ADDRESS_VSOCK))
        return connect_plain(t, a);
    dcgmConnectV3Params_v1 params = {
        .version = dcgmConnectV3Params_version1,
        .timeoutMs = t->timeout_ms,
    };
    dcgmReturn_t result = dcgm_call(d, dcgmConnect_v3, a->uri, &params, &d->engine);
    bool is_lacking = result == DCGM_ST_FUNCTION_NOT_FOUND || result == DCGM_ST_VER_MISMATCH ||
                      result == DCGM_ST_NOT_SUPPORTED;
    return is_lacking && a->kind != DCGM_ADDRESS_VSOCK ? connect_plain(t, a) : result;
}

static bool same_major(struct attempt *t, const char *address)
{
    struct dcgm *d = t->d;
    unsigned major = dcgm_version_major(d->version);
    if (major == 0 || major == d->major)
        return true;
    char reason[160];
    (void)snprintf(reason, sizeof(reason),
                   "the engine is DCGM %.20s and the library %.20s: their majors must be the same",
                   d->version, d->library_version);
    fail(t, FRAME_STATE_MISMATCH, DCGM_ST_VER_MISMATCH, address, reason);
    return false;
}

static enum frame_state_code state_of(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_VER_MISMATCH:
        return FRAME_STATE_MISMATCH;
    case DCGM_ST_INIT_ERROR:
    case DCGM_ST_NVML_NOT_LOADED:
    case DCGM_ST_LIBRARY_NOT_FOUND:
        return FRAME_STATE_NO_DRIVER;
    case DCGM_ST_NO_PERMISSION:
    case DCGM_ST_REQUIRES_ROOT:
        return FRAME_STATE_NO_PERMISSION;
    default:
        return FRAME_STATE_FAILED;
    }
}

// The link is there, or all of it is undone and the reason told.
static bool settle(struct attempt *t, dcgmReturn_t result, const char *address)
{
    struct dcgm *d = t->d;
    d->lost = false;
    if (result == DCGM_ST_OK && !d->engine)
        result = DCGM_ST_CONNECTION_NOT_VALID;
    if (result == DCGM_ST_OK)
        result = prove(d);
    if (result != DCGM_ST_OK)
        fail(t, state_of(result), result, address, dcgm_result_text(result));
    if (result != DCGM_ST_OK || !same_major(t, address)) {
        dcgm_engine_close(d);
        return false;
    }
    d->lost = false;
    sv_copy(d->address, sizeof(d->address), sv_from(address));
    return true;
}

static bool try_address(struct attempt *t, const char *text)
{
    struct dcgm_address a;
    const char *why;
    if (dcgm_address_parse(sv_from(text), &a, &why) < 0) {
        fail(t, FRAME_STATE_FAILED, DCGM_ST_BADPARAM, text, why);
        t->somebody = true; // where was meant is not known
        return false;
    }
    const char *told = a.is_uri || a.kind != DCGM_ADDRESS_TCP ? a.uri : a.plain;
    unsigned reach_ms = t->timeout_ms < REACH_TIMEOUT_MS ? t->timeout_ms : REACH_TIMEOUT_MS;
    enum dcgm_reach reach = dcgm_reach_try(&a, reach_ms, &why);
    t->somebody |= reach != DCGM_REACH_NOBODY;
    if (reach != DCGM_REACH_LISTENS) {
        fail(t, FRAME_STATE_FAILED, DCGM_ST_CONNECTION_NOT_VALID, told, why);
        return false;
    }
    if (a.kind == DCGM_ADDRESS_VSOCK && !t->d->fn.dcgmConnect_v3) {
        fail(t, FRAME_STATE_FAILED, DCGM_ST_FUNCTION_NOT_FOUND, told,
             "vsock needs DCGM 4.5 or later");
        return false;
    }
    return settle(t, connect_engine(t, &a), told);
}

static bool embed(struct attempt *t)
{
    struct dcgm *d = t->d;
    dcgmStartEmbeddedV2Params_v1 params = {
        .version = dcgmStartEmbeddedV2Params_version1,
        .opMode = DCGM_OPERATION_MODE_AUTO,
        .severity = DcgmLoggingSeverityUnspecified, // as __DCGM_DBG_LVL says
        .denyListCount = ARRAY_SIZE(denied_modules),
    };
    memcpy(params.denyList, denied_modules, sizeof(denied_modules));
    process_set_oom_score_adj(OOM_SCORE_EMBEDDED);
    dcgmReturn_t result = dcgm_call(d, dcgmStartEmbedded_v2, &params);
    d->engine = result == DCGM_ST_OK ? params.dcgmHandle : 0;
    d->embedded = true;
    if (!settle(t, result, "embedded"))
        return false;
    log_info("host engine embedded", LOG_STR("version", d->version));
    return true;
}

enum frame_state_code dcgm_engine_open(struct dcgm *d, const struct dcgm_engine_options *o,
                                       int32_t *vendor_code, char *text, size_t text_bytes)
{
    struct attempt t = {
        .d = d,
        .timeout_ms = o->timeout_ms ? o->timeout_ms : CONNECT_TIMEOUT_MS,
        .code = FRAME_STATE_READY,
        .text = text,
        .text_bytes = text_bytes,
    };
    text[0] = '\0';
    bool open = false;
    for (uint32_t i = 0; i < o->address_count && !open; i++)
        open = try_address(&t, o->addresses[i]);
    if (!open && o->embed && !t.somebody)
        open = embed(&t);
    if (open) {
        text[0] = '\0';
        *vendor_code = DCGM_ST_OK;
        return FRAME_STATE_READY;
    }
    if (t.code == FRAME_STATE_READY)
        fail(&t, FRAME_STATE_FAILED, DCGM_ST_CONNECTION_NOT_VALID, "DCGM",
             "no address of a host engine is given");
    *vendor_code = t.result;
    return t.code;
}
