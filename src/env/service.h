/*
 * service.h - what a service manager (systemd) hands to a process and wants to be told, and users
 * and groups by name. For programs that serve (daemon).
 *
 * Answers are 0 or more, or -errno. Threads: one, before others are started; the questions about a
 * socket: any.
 */
#ifndef KVARVE_ENV_SERVICE_H
#define KVARVE_ENV_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The socket that clients connect to, when the manager has made it (LISTEN_FDS, LISTEN_PID):
 * non-blocking and close-on-exec from now on. -ENOENT: there is none; -EINVAL: there are several,
 * or it is not a listening Unix socket of whole messages.
 */
int service_listener(void);

/* Whether stderr goes to the journal, which notes the time and reads levels. */
bool service_has_journal(void);

/* Tell the manager, as "READY=1". 0 also when nobody wants to know. */
int service_tell(const char *state);

/* The user this process acts as. */
uint32_t user_current(void);
/* A name, or a number as it is. -ENOENT: there is no such one. */
int user_find(const char *name, uint32_t *out_id);
int group_find(const char *name, uint32_t *out_id);
/* Whether the process at the other end was in this group, first or further, when it connected. */
bool socket_is_of_group(int fd, uint32_t group);

#endif
