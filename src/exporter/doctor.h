// SPDX-License-Identifier: Apache-2.0
// --doctor: what the other flags need, and whether it is there. One line a check on stdout, always
// in the same order, the same checks for the same flags and node:
//   ok    driver library       /usr/lib/.../libnvidia-ml.so.1, NVML 12.550.54
//   warn  process ids          ...; costs: ...; mend: ...
//   FAIL  kubelet              ...; costs: ...; mend: ...
// or, with --log-format=json, an object a line: {"level":"ok","check":...,"detail":...,"costs":...,
// "mend":...}. FAIL is what the flags ask for and is not there, warn what would be there with
// another setting. Vendor libraries are asked through podgpu-source, as the exporter does; whatever
// hangs, it ends within DOCTOR_MOST_NS.
#pragma once

#include "base/clock.h"
#include "exporter/options.h"

#define DOCTOR_MOST_NS (15 * NS_PER_S)

// The exit status: 0 without a FAIL, 1 else (also when stdout does not take it all).
int doctor_run(const struct exporter_options *options);
