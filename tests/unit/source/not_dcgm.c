// SPDX-License-Identifier: Apache-2.0
// A library without a function of DCGM.
int not_dcgm(void);

int not_dcgm(void)
{
    return 0;
}
