// SPDX-License-Identifier: Apache-2.0
// Tells when one of a few configuration files has really changed (content, not just a touch): written in place, renamed
// over, or swapped behind a symlink as Kubernetes does with ConfigMaps. 200 ms debounce; a 2 s poll covers what
// inotify can't see.
#pragma once

#include "io/loop.h"

struct reload_watch;
int must_use reload_watch_new(struct loop *l, void (*changed)(void *user), void *user, struct reload_watch **out);
// The files from now on ("" or NULL: none); their present content counts as seen.
void reload_watch_set(struct reload_watch *w, const char *first, const char *second);
void reload_watch_free(struct reload_watch *w);
