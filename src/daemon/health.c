/*
 * health.c - see health.h.
 *
 * Invariants
 *   H1  The HTTP thread touches nothing but this struct, under its mutex.
 *   H2  A request is answered within ANSWER_MS, whatever the loop does.
 *
 * Threads: the loop's, and the listener's in `respond`.
 */
#include "daemon/health.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "daemon/metrics.h"
#include "env/env_posix.h"
#include "env/thread.h"
#include "http/listen.h"

#define ANSWER_MS 2000u
#define WRONG_MAX 256

struct daemon_health {
    http_listener *listener;
    int descriptor;
    kvarve_mutex mutex;
    kvarve_condition answered;
    uint64_t asked;     /* requests so far */
    uint64_t published; /* `asked` as it was at the last answer */
    size_t size;
    char metrics[METRICS_ROOM];
    char wrong[WRONG_MAX]; /* empty: all is well */
};

static void set_body(http_reply *out, unsigned code, const char *type, const char *text,
                     size_t size)
{
    out->code = code;
    out->type = type;
    out->body = size == 0 ? NULL : kvarve_allocate(size);
    out->size = out->body == NULL ? 0 : size;
    if (out->body != NULL) {
        memcpy(out->body, text, size);
    }
}

/* With the mutex: whether the loop has answered since now. */
static bool ask(daemon_health *health)
{
    kvarve_clock *clock = clock_posix();
    const uint64_t deadline = clock->monotonic_ns(clock) + ANSWER_MS * KVARVE_NS_PER_MS; /* H2 */
    const uint64_t mine = ++health->asked;

    event_set(health->descriptor);
    while (health->published < mine && clock->monotonic_ns(clock) < deadline) {
        condition_wait(&health->answered, &health->mutex, deadline);
    }
    return health->published >= mine;
}

static void respond(void *context, const char *path, http_reply *out)
{
    static const char silent[] = "the daemon does not answer\n";
    daemon_health *health = context;
    const bool is_health = strcmp(path, "/healthz") == 0;
    char text[WRONG_MAX + 8];

    if (!is_health && strcmp(path, "/metrics") != 0) {
        return;
    }
    mutex_lock(&health->mutex);
    if (!ask(health)) {
        set_body(out, 503, "text/plain", silent, strlen(silent));
    } else if (is_health) {
        (void)snprintf(text, sizeof text, "%s\n", health->wrong[0] == '\0' ? "ok" : health->wrong);
        set_body(out, health->wrong[0] == '\0' ? 200 : 503, "text/plain", text, strlen(text));
    } else {
        set_body(out, 200, "text/plain; version=0.0.4", health->metrics, health->size);
    }
    mutex_unlock(&health->mutex);
}

kvarve_status health_start(uint16_t port, daemon_health **out, kvarve_error *err)
{
    daemon_health *health = kvarve_allocate(sizeof *health);
    kvarve_status status;

    if (health == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "listen for HTTP");
    }
    mutex_init(&health->mutex);
    condition_init(&health->answered);
    health->descriptor = event_open();
    status = health->descriptor < 0
                 ? kvarve_fail_io(err, health->descriptor, "make an event descriptor")
                 : http_listen(port, respond, health, &health->listener, err);
    if (status != KVARVE_OK) {
        health_stop(health);
        return status;
    }
    *out = health;
    return KVARVE_OK;
}

uint16_t health_port(const daemon_health *health)
{
    return http_listener_port(health->listener);
}

int health_descriptor(const daemon_health *health)
{
    return health->descriptor;
}

void health_publish(daemon_health *health, const char *metrics, size_t size, const char *wrong)
{
    mutex_lock(&health->mutex);
    event_clear(health->descriptor);
    health->size = size < sizeof health->metrics ? size : sizeof health->metrics;
    memcpy(health->metrics, metrics, health->size);
    (void)snprintf(health->wrong, sizeof health->wrong, "%s", wrong == NULL ? "" : wrong);
    health->published = health->asked;
    condition_signal_all(&health->answered);
    mutex_unlock(&health->mutex);
}

void health_stop(daemon_health *health)
{
    if (health == NULL) {
        return;
    }
    mutex_lock(&health->mutex);
    health->published = UINT64_MAX; /* nobody waits for a loop that has ended */
    condition_signal_all(&health->answered);
    mutex_unlock(&health->mutex);
    http_listener_stop(health->listener);
    if (health->descriptor >= 0) {
        event_close(health->descriptor);
    }
    condition_deinit(&health->answered);
    mutex_deinit(&health->mutex);
    kvarve_release(health);
}
