/* Wall clock of a lab node, off by the nanoseconds in /etc/netdoctor-lab-clock.
 *
 * Loaded into every program of the node by /etc/ld.so.preload. Only readings of the wall clock
 * change, and absolute deadlines on it are taken back to real time; monotonic clocks stay true,
 * so time-outs and sleeps last as long as they should. Programs without the C library's dynamic
 * linking escape. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL
/* Deadlines before 2001 count from boot, not from 1970. */
#define LOOKS_LIKE_WALL_CLOCK 1000000000LL

static long long offset_ns;

/* Once, before main: the file is out of reach in a chroot or sandbox later on. */
__attribute__((constructor)) static void load(void) {
  char text[64];
  int fd = open("/etc/netdoctor-lab-clock", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n > 0) {
    text[n] = 0;
    offset_ns = atoll(text);
  }
}

static void shift(struct timespec *t, long long by) {
  long long ns = t->tv_nsec + by % NS;
  t->tv_sec += by / NS;
  if (ns < 0) {
    ns += NS;
    t->tv_sec--;
  } else if (ns >= NS) {
    ns -= NS;
    t->tv_sec++;
  }
  t->tv_nsec = ns;
}

static int is_wall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* The newest version of a symbol: a plain dlsym may find the one for programs of 1999. */
static void *real(const char *name, const char *version) {
  void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

#define REAL(type, name, version)                                                                  \
  static type next;                                                                                \
  if (!next)                                                                                       \
    next = (type)real(name, version)

typedef int (*clock_fn)(clockid_t, struct timespec *);
int clock_gettime(clockid_t clock, struct timespec *t) {
  REAL(clock_fn, "clock_gettime", NULL);
  int result = next ? next(clock, t) : (int)syscall(SYS_clock_gettime, clock, t);
  if (result == 0 && t && is_wall(clock))
    shift(t, offset_ns);
  return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec t;
  if (clock_gettime(CLOCK_REALTIME, &t))
    return -1;
  if (tv) {
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
  }
  return 0;
}

time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out)
    *out = t.tv_sec;
  return t.tv_sec;
}

int timespec_get(struct timespec *t, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, t) == 0 ? base : 0;
}

/* A deadline the program computed from the shifted clock, as the kernel must see it. */
static const struct timespec *back(const struct timespec *t, struct timespec *copy) {
  if (!t || t->tv_sec < LOOKS_LIKE_WALL_CLOCK)
    return t;
  *copy = *t;
  shift(copy, -offset_ns);
  return copy;
}

typedef int (*sleep_fn)(clockid_t, int, const struct timespec *, struct timespec *);
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *rest) {
  struct timespec copy;
  REAL(sleep_fn, "clock_nanosleep", "GLIBC_2.17");
  return next(clock, flags, (flags & TIMER_ABSTIME) && is_wall(clock) ? back(t, &copy) : t, rest);
}

typedef int (*wait_fn)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *t) {
  struct timespec copy;
  REAL(wait_fn, "pthread_cond_timedwait", "GLIBC_2.3.2");
  return next(cond, mutex, back(t, &copy));
}

typedef int (*clockwait_fn)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                            const struct timespec *);
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *t) {
  struct timespec copy;
  REAL(clockwait_fn, "pthread_cond_clockwait", NULL);
  return next ? next(cond, mutex, clock, is_wall(clock) ? back(t, &copy) : t) : ENOSYS;
}

typedef int (*lock_fn)(pthread_mutex_t *, const struct timespec *);
int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *t) {
  struct timespec copy;
  REAL(lock_fn, "pthread_mutex_timedlock", NULL);
  return next(mutex, back(t, &copy));
}

typedef int (*sem_fn)(sem_t *, const struct timespec *);
int sem_timedwait(sem_t *sem, const struct timespec *t) {
  struct timespec copy;
  REAL(sem_fn, "sem_timedwait", NULL);
  return next(sem, back(t, &copy));
}
