/*
 * embedded_private.h - a host's fields, and what embedded.c and contain.c ask of each other.
 */
#ifndef KVARVE_EMBEDDED_EMBEDDED_PRIVATE_H
#define KVARVE_EMBEDDED_EMBEDDED_PRIVATE_H

#include "embedded/embedded.h"

#include <stdatomic.h>

#include "env/thread.h"

/* SOUND -> FAILING, by whoever is first -> FAILED, when `failure` is written; never back. */
typedef enum host_state { HOST_SOUND, HOST_FAILING, HOST_FAILED } host_state;

struct embedded {
    door base;        /* first */
    env_posix *posix; /* NULL: a world of the caller's, without threads */
    kvarve_env env;
    store_machine *store;
    kvarve_mutex mutex;
    kvarve_condition changed; /* for callers */
    kvarve_condition work;    /* for the thread */
    kvarve_thread thread;
    bool has_thread;
    bool has_work;
    bool is_sleeping; /* the thread, until sleeps_until_ns */
    bool is_stopping;
    uint64_t sleeps_until_ns;
    uint64_t epoch;
    uint32_t waiters;
    uint32_t io_timeout_ms;
    kvarve_event *events;
    uint32_t event_room; /* a power of two */
    uint32_t event_first;
    uint32_t event_count;
    int event_fd;
    uint64_t device;
    uint64_t inode;
    embedded *next_open;
    bool is_listed;                      /* in open_list */
    atomic_int state;                    /* host_state */
    char failure[KVARVE_ERROR_TEXT_MAX]; /* HOST_FAILED: the assertion; never changed again */
};

/* --- contain.c --- */

bool host_is_failed(const embedded *host);
/* What failed, for people; a static text or the host's. */
const char *host_failure(const embedded *host);

/* Fail the host from a thread that does not hold its lock: the handler of its pool. */
void host_fail(void *context, const char *text);
/* The calling thread is the host's own, and runs under its lock. */
void host_contain_thread(embedded *host);

/* This thread's call is about `host` (NULL: about none any more). No call: no-op, as below. */
void call_set_host(embedded *host);
void call_set_lock(bool has_lock);
/* It has the opening mutex, for this directory; NULL: no more. */
void call_set_opening(const char *directory);
/* Leave the call: its host has failed. With the host's lock, which is let go. */
_Noreturn void call_leave(embedded *host);

/* --- embedded.c --- */

/* A failed open lets go of the opening mutex; the folder stays listed if it is there. */
void host_leave_opening(embedded *host, const char *directory);

/* embedded_door.c */
extern const door_ops embedded_door_ops;

#endif
