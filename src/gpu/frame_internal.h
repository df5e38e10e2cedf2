// SPDX-License-Identifier: Apache-2.0
// Between frame.c and the files that check one kind of frame.
#pragma once

#include "gpu/frame.h"

// NULL, or what is wrong. entities: how many the list has.
const char *frame_usage_check(const struct frame_usage *head, size_t bytes, uint32_t entities);
// Points frame->as.usage into a payload that was checked.
void frame_usage_open(const struct frame_usage *head, struct frame *out);
