// SPDX-License-Identifier: Apache-2.0
// Prints a page for others to judge: render_pages prometheus|openmetrics
// rich|mig-once|virtual|old|labels|parts|dcgm.
#include <stdio.h>
#include <string.h>

#include "render_fixture.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *scenario = argv[2];
    bool dcgm_alone = strcmp(scenario, "dcgm") == 0;
    bool parts = dcgm_alone || strcmp(scenario, "parts") == 0;
    cleanup(fixture_freep) struct fixture *f = parts ? fixture_new_rich_dcgm() : fixture_new_rich();
    f->without_nvml = dcgm_alone;
    if (dcgm_alone) // holders are those of NVML's list
        f->owners = (struct render_owners){0};
    f->options.mig_board_once = strcmp(scenario, "mig-once") == 0;
    f->options.flags.use_old_namespace = strcmp(scenario, "old") == 0;
    f->options.flags.empty_owner_labels = f->options.flags.use_old_namespace;
    if (f->options.flags.use_old_namespace)
        f->options.hostname_label = HOSTNAME_LABEL_BOTH;
    if (strcmp(scenario, "virtual") == 0) {
        f->options.flags.virtual_gpus = true;
        fixture_hold(f, 2, "ns", "p", "c", "0");
        fixture_hold(f, 2, "ns", "q", "c", "1");
        fixture_hold(f, 2, "ns", "q", "c", "1");
    }
    if (strcmp(scenario, "labels") == 0) {
        fixture_label(f, "a\"b/back\\slash", "5a0f4a3e",
                      "\"app.kubernetes.io/name\":\"x\",\"gpu\":\"mine\",\"7days\":\"\\\\ \\n\"");
        fixture_label(f, "kube-system/train-0", "3b7f0a86", "\"a.b\":\"1\",\"a_b\":\"2\"");
    }
    fputs(fixture_page(f, strcmp(argv[1], "openmetrics") == 0 ? TEXT_FORMAT_OPENMETRICS
                                                              : TEXT_FORMAT_PROMETHEUS),
          stdout);
    return 0;
}
