// SPDX-License-Identifier: GPL-2.0
/*
 * lapic_timer_khz=N on the command line: the frequency of the local APIC's timer, for guests that could only
 * measure it. Measuring takes the guest 100 ms, and a virtual processor that its host does not run for as long
 * in between measures nothing and is left without a timer: such a guest hangs at boot. Built into the guest
 * kernel; a period known before apic.c calibrates is used as it is (see calibrate_APIC_clock there).
 */
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <asm/apic.h>

static int __init set_lapic_timer_khz(char *text)
{
	unsigned int khz;
	int error = text ? kstrtouint(text, 10, &khz) : -EINVAL;

	if (error)
		return error;
	lapic_timer_period = div_u64((u64)khz * 1000, HZ);
	return 0;
}
early_param("lapic_timer_khz", set_lapic_timer_khz);
