// SPDX-License-Identifier: Apache-2.0
// Tells when one of a few configuration files has really changed (content, not just a touch):
// written in place, renamed over, or swapped behind a symlink as Kubernetes does with ConfigMaps.
// 200 ms debounce; a 2 s poll covers what inotify can't see.
#pragma once

#include "io/loop.h"

struct reload_watch;
// changed is called once per change, whichever of the files it was; from inside it reload_watch_set
// and reload_watch_free may be called. A file that is gone or can't be read is waited for: it
// counts as changed when it is back with other content.
int must_use reload_watch_new(struct loop *l, void (*changed)(void *user), void *user,
                              struct reload_watch **out);
// The files from now on ("" or NULL: none). Present content counts as seen; a path that was watched
// before keeps what was seen of it, so that a change during a reload is not lost.
void reload_watch_set(struct reload_watch *w, const char *first, const char *second);
// For tests: other times than 200 ms and 2 s.
void reload_watch_set_timing(struct reload_watch *w, uint64_t debounce_ns, uint64_t poll_ns);
void reload_watch_free(struct reload_watch *w);
