// SPDX-License-Identifier: Apache-2.0
// A set of AWS keys that is owned, and erased when it goes. An engine.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"

struct aws_key_set {
    char *access_key, *secret_key, *session_token; // NULL: none
    int64_t expires_s;                             // since 1970, by its issuer's clock; 0: never
    uint64_t expires_ns;                           // CLOCK_MONOTONIC; UINT64_MAX: never
};

// The three as they come from anywhere: the token may be empty. What could not stand in a header is
// refused. 0, -EINVAL with *err (which never shows them), -ENOMEM.
int must_use aws_key_set_init(struct aws_key_set *k, struct sv access_key, struct sv secret_key,
                              struct sv session_token, struct error *err);
void aws_key_set_deinit(struct aws_key_set *k); // erases
bool aws_key_set_equals(const struct aws_key_set *a, const struct aws_key_set *b);
// How long after they came keys that live so long are fetched anew: five minutes before they expire
// and up to five more by chance (any number); a short life is left at a half to two thirds. Not
// under a second.
uint64_t aws_keys_refresh_ns(uint64_t life_ns, uint64_t chance);

// For the other secrets of these files.
void aws_erase_text(char *text);   // and frees; NULL: nothing
void aws_erase_buf(struct buf *b); // and frees
bool aws_is_plain(struct sv text); // printable ASCII without spaces
