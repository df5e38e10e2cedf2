// SPDX-License-Identifier: Apache-2.0
// What a program puts in order about itself before anything else happens.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Descriptors 0 to 2 that came closed are taken by one that can neither be read nor written, so
// that no socket or file of ours gets such a number and receives what is meant for the log. SIGPIPE
// is ignored: a reader of the log that goes away is no reason to end. Before any other descriptor
// is opened.
void process_set_up(void);
// From the end of the loop on: being asked to end a second time must not turn an orderly end into a
// death by signal.
void process_hold_signals(void);
// The soft limit on descriptors goes up to wanted, as far as the hard one lets it; it never goes
// down. Returns the limit in force.
uint64_t process_raise_fd_limit(uint64_t wanted);
// What was printed on stdout gets there, or an error is logged: false.
bool process_finish_stdout(void);
// How gladly the kernel takes this process when memory is short, -1000 to 1000. Less privileged
// than the score it was started with: then it stays.
void process_set_oom_score_adj(int adj);
