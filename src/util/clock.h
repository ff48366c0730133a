// A clock that only goes forward.
#pragma once
#include <math.h>
#include <time.h>

static inline double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What it will show in so many seconds, for pthread_cond_timedwait().
static inline struct timespec clock_after(double seconds)
{
    const double end = clock_seconds() + seconds, whole = floor(end);
    return (struct timespec){(time_t)whole, (long)((end - whole) * 1e9)};
}
