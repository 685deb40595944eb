/*
 * socket.h - Unix sockets that carry whole messages and descriptors (SOCK_SEQPACKET), and waiting
 * on many descriptors at once. For the folders that own connections (daemon, client).
 *
 * Answers are 0 or more, or -errno. Descriptors are close-on-exec; sockets are non-blocking.
 * Threads: any; one thread waits on a poller at a time.
 */
#ifndef KVARVE_ENV_SOCKET_H
#define KVARVE_ENV_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/memory.h"

/*
 * Listen at `path` (absolute or relative, shorter than the system's 108 bytes: -ENAMETOOLONG) with
 * this file mode. A socket file that nobody listens on is replaced; -EADDRINUSE: somebody does;
 * -EEXIST: it is something else.
 */
int socket_listen(const char *path, uint32_t mode);
int socket_accept(int listener);      /* -EAGAIN: nobody is waiting */
int socket_connect(const char *path); /* -ENOENT, -ECONNREFUSED: nobody listens there */
/* Two ends that are connected to each other. */
int socket_pair(int out_ends[2]);
void socket_close(int fd);
/* What the peer sends from now on is refused (-EPIPE); what it has sent can still be received. */
void socket_stop_receiving(int fd);

/* Send one message, with a descriptor unless it is negative (it stays the caller's). -EAGAIN: the
 * peer's queue is full; -EPIPE, -ECONNRESET: it is gone. */
int socket_send(int fd, const void *bytes, size_t size, int passed);
/*
 * Receive one message into `bytes`: its size, 0 when the peer has closed, -EAGAIN: there is none,
 * -EMSGSIZE: it was longer than `room` (it is lost). *out_passed: a descriptor that came with it,
 * now the caller's, or -1; further ones are closed.
 */
int64_t socket_receive(int fd, void *bytes, size_t room, int *out_passed);

/* Wait until `fd` can be read (or, wants_write: written). false: not before deadline_ns on the
 * monotonic clock. Hang-ups count as readable. */
bool socket_wait(int fd, bool wants_write, uint64_t deadline_ns);

/* Who is at the other end, as the kernel knows it. */
typedef struct socket_peer {
    int64_t pid;
    uint32_t uid;
    uint32_t gid;
    int process_fd;      /* readable once the process is gone; the caller's to close */
    uint64_t started_at; /* of the process, in clock ticks since boot */
} socket_peer;

/* -ESRCH: it is gone already. */
int socket_identify(int fd, socket_peer *out);
/* When process `pid` was started, in clock ticks since boot; 0: there is none. */
uint64_t process_started_at(int64_t pid);
/* A descriptor that becomes readable when this process is gone: >= 0, -ESRCH, or -ENOSYS. */
int process_watch(int64_t pid);

/*
 * Map `fd`, a memfd of somebody else, of exactly `size` bytes, for reading (is_writable: and
 * writing). -EPERM: it is not sealed against resize, so that its owner could make an access fail;
 * -EINVAL: it is no memfd or has another size. Forked children do not have it. The descriptor stays
 * the caller's.
 */
int memory_map_foreign(int fd, size_t size, bool is_writable, kvarve_mapping *out);
/* The size of a memfd that may be mapped, or -errno as above. */
int64_t memory_foreign_size(int fd);
void memory_unmap_foreign(kvarve_mapping *mapping); /* clears it; of a cleared one: nothing */

/* --- waiting on many --- */

typedef struct poller_event {
    void *context; /* as added */
    bool can_read; /* or hung up */
    bool can_write;
} poller_event;

int poller_open(void);
/* Add, or change what is waited for. `context` comes back with each event. */
int poller_set(int poller, int fd, void *context, bool wants_write, bool is_known);
void poller_remove(int poller, int fd);
/* Up to `room` events; waits until deadline_ns for the first. Their number; 0: none. */
int poller_wait(int poller, poller_event *out, size_t room, uint64_t deadline_ns);
void poller_close(int poller);

/* A descriptor that becomes readable when one of `count` signals comes; they are blocked for the
 * calling thread and those it starts. -errno. */
int signals_open(const int *signals, size_t count);
/* The next one, or 0. */
int signals_take(int fd);

#endif
