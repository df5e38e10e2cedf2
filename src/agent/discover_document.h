// SPDX-License-Identifier: Apache-2.0
// Documents that list targets, of file_sd_configs (JSON, YAML) and http_sd_configs (JSON):
// [{"targets": ["host:port", ...], "labels": {"name": "value", ...}}, ...]. An engine. Source:
// prometheus.io/docs/prometheus/latest/http_sd/ and .../configuration/#file_sd_config.
#pragma once

#include "agent/target_group.h"
#include "base/error.h"

// All groups of the document as one. extra: a label that each target gets, whatever the document
// says (__meta_filepath, __meta_url). name: for messages. 0; -EINVAL with *err (position, what was
// expected); -EFBIG with *err (too large, too many targets); -ENOMEM.
int must_use discover_document_read_json(struct sv text, const char *name,
                                         const struct label *extra, struct target_group **out,
                                         struct error *err);
int must_use discover_document_read_yaml(struct sv text, const char *name,
                                         const struct label *extra, struct target_group **out,
                                         struct error *err);
