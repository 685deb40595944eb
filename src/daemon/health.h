/*
 * health.h - answers /healthz and /metrics by HTTP, answered with what the loop publishes.
 *
 * A request wakes the loop (health_descriptor) and waits a little for its answer; a loop that does
 * not answer is not well. So an idle daemon sleeps, and the HTTP thread never sees the store.
 *
 * Threads    All calls: the loop's. Ownership  As said below.
 */
#ifndef KVARVE_DAEMON_HEALTH_H
#define KVARVE_DAEMON_HEALTH_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

typedef struct daemon_health daemon_health;

/* Answer at 127.0.0.1:port; 0: any that is free. Statuses as http_listen. */
KVARVE_NODISCARD kvarve_status health_start(uint16_t port, daemon_health **out, kvarve_error *err);
uint16_t health_port(const daemon_health *health);

/* Readable when somebody asks; health_publish makes it unreadable. */
int health_descriptor(const daemon_health *health);
/* What is asked for: the metrics, and what is wrong (NULL: nothing). Both are copied. */
void health_publish(daemon_health *health, const char *metrics, size_t size, const char *wrong);

void health_stop(daemon_health *health); /* NULL is a no-op */

#endif
