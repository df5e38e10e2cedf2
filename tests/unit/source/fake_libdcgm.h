// SPDX-License-Identifier: Apache-2.0
// A library with the start of DCGM's interface that does what its struct says, as libdcgm.so.4
// (FAKE_MAJOR 4) and .so.3. The struct is found in the loaded library by its name, fake_libdcgm.
#pragma once

#include "source/dcgm_abi.h"

struct fake_libdcgm {
    dcgmReturn_t init, fields_init, connect, connect_v3, embed, hostengine_version, devices;
    dcgmHandle_t handle; // that a connect gives
    const char *version, *engine_version;
    // What was asked.
    unsigned inits, shutdowns, connects, connects_v3, disconnects, embeds, stops;
    char address[256];
    dcgmConnectV2Params_v2 v2;
    dcgmConnectV3Params_v1 v3;
    dcgmStartEmbeddedV2Params_v1 embedded;
    dcgmHandle_t closed; // handle that was disconnected or stopped last
};
