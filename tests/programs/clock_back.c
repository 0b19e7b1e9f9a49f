/* Wall-clock time that a program can set back, for itself alone: preloaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static long seconds_back;

void set_clock_back(long seconds) { seconds_back = seconds; }

int clock_gettime(clockid_t clock, struct timespec *time)
{
	static int (*real)(clockid_t, struct timespec *);

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int status = real(clock, time);
	if (status == 0 && clock == CLOCK_REALTIME)
		time->tv_sec -= seconds_back;
	return status;
}
