/*
 * ask.h - ask a running daemon how it is, over its socket and in its protocol.
 *
 * Threads: any. Blocks for as long as it is given.
 */
#ifndef KVARVE_DAEMON_ASK_H
#define KVARVE_DAEMON_ASK_H

#include <stdint.h>

#include "kvarve/admin.h"
#include "kvarve/error.h"
#include "protocol/protocol.h"

typedef struct daemon_answer {
    wire_status_is status;
    kvarve_statistics statistics; /* begin with KVARVE_STATISTICS_INIT; rows it knows are filled */
} daemon_answer;

/* KVARVE_MISS: nobody listens there; KVARVE_UNAVAILABLE: no answer in time, or none that is
 * understood; else what the daemon says, as KVARVE_INVALID for a user that is not allowed. */
KVARVE_NODISCARD kvarve_status daemon_ask(const char *path, uint32_t timeout_ms, daemon_answer *out,
                                          kvarve_error *err);

#endif
