/*
 * metrics.h - the daemon's figures as text for Prometheus. Pure. Threads: any.
 */
#ifndef KVARVE_DAEMON_METRICS_H
#define KVARVE_DAEMON_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/admin.h"

/* ROW(field, "counter" or "gauge", name, sentence): what the daemon counts beside its store. */
#define DAEMON_FIGURE_TABLE(ROW)                                                                   \
    ROW(uptime_s, "gauge", "uptime_seconds", "Since it began to serve.")                           \
    ROW(clients, "gauge", "clients", "Sessions with a connection.")                                \
    ROW(quarantined, "gauge", "clients_quarantined",                                               \
        "Sessions without a connection whose process is not known to be gone.")                    \
    ROW(parked, "gauge", "requests_parked", "Requests that wait for their answer.")                \
    ROW(namespaces, "gauge", "client_namespaces", "Namespaces that clients have open.")            \
    ROW(puts, "gauge", "client_puts", "Puts that clients have a handle of.")                       \
    ROW(leases, "gauge", "client_leases", "Leases that clients have a handle of.")                 \
    ROW(pinned_slots, "gauge", "client_slots_pinned", "Slots that a client may be copying into.")  \
    ROW(accepted, "counter", "clients_accepted_total", "Connections that were taken.")             \
    ROW(refused, "counter", "clients_refused_total",                                               \
        "Connections that were not: user not allowed, or too many.")                               \
    ROW(dropped, "counter", "clients_dropped_total",                                               \
        "Clients that were disconnected for what they sent or did not take.")                      \
    ROW(is_stopping, "gauge", "stopping", "1: it is shutting down.")

typedef struct daemon_figures {
#define DAEMON_FIGURE_FIELD(field, type, name, text) uint64_t field;
    DAEMON_FIGURE_TABLE(DAEMON_FIGURE_FIELD)
#undef DAEMON_FIGURE_FIELD
} daemon_figures;

#define METRICS_ROOM 32768 /* enough for all of them */

/* Write the text, NUL included, to out[METRICS_ROOM]; its length. */
size_t metrics_write(const kvarve_statistics *store, const daemon_figures *figures, char *out);

#endif
