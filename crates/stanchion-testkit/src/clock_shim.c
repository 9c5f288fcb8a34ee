/* Shifts the wall clock of the process that preloads it by the microseconds found in a shared file.
 * The monotonic clock is left alone: a stepped wall clock is exactly the fault to test. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_us;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("STANCHION_CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) offset_us = page;
}

/* Asks the kernel directly: libc's own functions are the ones replaced here. */
int clock_gettime(clockid_t id, struct timespec *ts) {
    int failed = (int)syscall(SYS_clock_gettime, id, ts);
    if (failed || !offset_us || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
    int64_t us = (int64_t)ts->tv_sec * 1000000 + ts->tv_nsec / 1000 + *offset_us;
    ts->tv_nsec = (us % 1000000) * 1000 + ts->tv_nsec % 1000;
    ts->tv_sec = us / 1000000;
    return 0;
}

int gettimeofday(struct timeval *tv, void *tz) {
    (void)tz;
    struct timespec ts;
    int failed = clock_gettime(CLOCK_REALTIME, &ts);
    if (!failed && tv) {
        tv->tv_sec = ts.tv_sec;
        tv->tv_usec = ts.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
