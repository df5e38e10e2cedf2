// SPDX-License-Identifier: Apache-2.0
// Load over time: a duty between 0 and 1 at each moment since the start, in parts per million, as a
// pure function, so that schedule, truth and tests agree to the digit. An engine.
// Lengths are Go's durations or plain seconds ("20s", "1m30s", "0.5"), levels are shares or
// percentages ("0.5", "50%").
//
//   square:on=20s,off=20s[,high=1][,low=0]   sine:period=60s[,low=0][,high=1]
//   ramp:period=60s[,low=0][,high=1]         steps:every=10s,levels=0/0.5/1
//   random:every=10s,seed=N[,low=0][,high=1] constant[:high=1]
//
// A sine starts at low, a ramp rises from low to high and jumps back; random has a level for each
// step, drawn from low to high, and starts anew after BURN_RANDOM_STEPS.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"

#define BURN_PPM 1000000u
#define BURN_LEVELS_MAX 64
#define BURN_RANDOM_STEPS 4096 // bounds the sum of a random shape; 11 hours of steps of 10 s
// Of each length: shorter ones no GPU can follow, and the square of a longer one would not fit.
#define BURN_PERIOD_LEAST_NS UINT64_C(1000000)
#define BURN_PERIOD_MOST_NS (UINT64_C(31) * 86400 * 1000000000)

enum burn_shape_kind {
    BURN_CONSTANT,
    BURN_SQUARE,
    BURN_SINE,
    BURN_RAMP,
    BURN_STEPS,
    BURN_RANDOM,
};

struct burn_shape {
    enum burn_shape_kind kind;
    uint64_t on_ns, off_ns; // square
    uint64_t period_ns;     // sine, ramp; length of a step of steps and random
    uint32_t low_ppm, high_ppm;
    uint32_t levels[BURN_LEVELS_MAX]; // steps
    uint32_t level_count;
    uint64_t seed;
};

// 0; -EINVAL with *err naming the word, the key and what was expected.
int must_use burn_shape_parse(struct sv text, struct burn_shape *out, struct error *err);
uint32_t burn_shape_duty_ppm(const struct burn_shape *s, uint64_t t_ns);
// Integral of the duty over [0, t_ns), in nanoseconds of full load, exact for shapes of constant
// pieces, to 1 us for the others.
uint64_t burn_shape_busy_ns(const struct burn_shape *s, uint64_t t_ns);
// The next moment after t_ns at which the duty jumps (square, steps, random) or a period ends;
// UINT64_MAX: never.
uint64_t burn_shape_edge_ns(const struct burn_shape *s, uint64_t t_ns);
// After how long it starts anew (random: a step); 0: a constant.
uint64_t burn_shape_period_ns(const struct burn_shape *s);
// A share ("0.5") or percentage ("50%") of 0 to 1 in parts per million; a length in nanoseconds. 0
// or -EINVAL.
int must_use burn_parse_share(struct sv text, uint32_t *out_ppm);
int must_use burn_parse_length(struct sv text, uint64_t *out_ns);
bool burn_shape_is_on(const struct burn_shape *s, uint64_t t_ns); // duty > low
