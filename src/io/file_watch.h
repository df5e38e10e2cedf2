// SPDX-License-Identifier: Apache-2.0
// Tells when one of a few configuration files has really changed (content, not just a touch):
// written in place, renamed over, or swapped behind a symlink as Kubernetes does with ConfigMaps.
// Of a directory the content is the names in it. 200 ms debounce; a 2 s poll covers what inotify
// can't see.
#pragma once

#include "io/loop.h"

struct file_watch;
// changed is called once per change, whichever of the files it was; from inside it file_watch_set
// and file_watch_free may be called. A file that is gone or can't be read is waited for: it
// counts as changed when it is back with other content.
int must_use file_watch_new(struct loop *l, void (*changed)(void *user), void *user,
                            struct file_watch **out);
#define FILE_WATCH_MAX 96 // paths; those beyond are not watched
// The paths from now on ("" or NULL: none). Present content counts as seen; a path that was watched
// before keeps what was seen of it, so that a change during a reload is not lost. 0; -ENOMEM: as
// before.
int must_use file_watch_set(struct file_watch *w, const char *const *paths, size_t count);
// For tests: other times than 200 ms and 2 s.
void file_watch_set_timing(struct file_watch *w, uint64_t debounce_ns, uint64_t poll_ns);
void file_watch_free(struct file_watch *w);
