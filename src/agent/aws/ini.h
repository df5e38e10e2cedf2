// SPDX-License-Identifier: Apache-2.0
// The INI dialect of ~/.aws/credentials and ~/.aws/config. Comments are lines that begin with # or
// ;, and what follows " #" or " ;" behind a value. Lines indented deeper than the setting before
// belong to it, and are left out. Keys have no case; of two settings of one name the later holds.
// Source: the AWS SDKs and Tools reference guide, "Shared config and credentials files". An engine.
#pragma once

#include "base/error.h"
#include "base/sv.h"

struct ini_line { // views into the text
    struct sv section;
    struct sv key; // .len 0: the header of the section
    struct sv value;
    unsigned line; // 1-based
};

struct ini {
    struct ini_line *lines;
    size_t count, capacity;
};

// The text must outlive it. file is for messages, which never show values. 0, -EINVAL with *err
// (position and what was expected), -EFBIG, -ENOMEM.
int must_use ini_parse(struct sv text, const char *file, struct ini *out, struct error *err);
void ini_deinit(struct ini *i);
