// SPDX-License-Identifier: Apache-2.0
// The command line of podgpu-source: the source's name, then pairs of an option and its value.
#pragma once

#include "source/dcgm_source.h"
#include "source/nvml_source.h"

struct source_arguments {
    enum frame_source source;
    struct source_options common;
    struct nvml_source_options nvml;
    struct dcgm_source_options dcgm;
    bool log_json, log_debug;
};

// Borrows the words. 0, or the exit status after which the reason and the usage were written to
// standard error.
int must_use source_arguments_parse(int argc, char **argv, struct source_arguments *out);
// Says what is wrong with which word, and the usage, on standard error. The exit status.
int must_use source_arguments_refuse(const char *what, const char *word);
