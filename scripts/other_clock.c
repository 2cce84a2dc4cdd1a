/* Another clock for the programs of scripts/random-quarter (LD_PRELOAD): the time of day is $XB_CLOCK seconds behind, and
 * so are the times of files that were written since $XB_SINCE. Times of older files stay: the script has set them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long of(const char *name) {
  const char *value = getenv(name);
  return value ? atol(value) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec -= of("XB_CLOCK");
  return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict file) {
  int failed = syscall(SYS_statx, folder, path, flags, mask, file);
  long since = of("XB_SINCE");
  if (!failed && since && file->stx_mtime.tv_sec >= since) file->stx_mtime.tv_sec -= of("XB_CLOCK");
  return failed;
}
