/*
 * metrics.c - see metrics.h.
 *
 * Names are those of KVARVE_STATISTIC_TABLE, made what Prometheus expects of names: `kvarve_` in
 * front, `_total` behind what only grows.
 *
 * Threads: any.
 */
#include "daemon/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define REASON_MAX 48

typedef struct text_buffer {
    char *bytes;
    size_t size;
} text_buffer;

__attribute__((format(printf, 2, 3))) static void add(text_buffer *out, const char *format, ...)
{
    const size_t room = METRICS_ROOM - out->size;
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(out->bytes + out->size, room, format, arguments);
    va_end(arguments);
    KVARVE_ASSERT(size >= 0 && (size_t)size < room);
    out->size += (size_t)size;
}

/* What only grows since open; everything else is what there is now. */
static bool is_counter(const char *field)
{
    static const char *const counters[] = {
        "puts",
        "puts_present",
        "puts_durable",
        "puts_aborted",
        "finds",
        "hits",
        "evictions",
        "exact_variants",
        "payload_bytes_written",
        "header_bytes_written",
        "index_log_bytes_written",
        "index_database_bytes_written",
        "recency_commits",
        "recency_bytes_written",
        "bytes_read",
        "syncs",
    };

    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        if (strcmp(field, counters[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void add_one(text_buffer *out, const char *name, const char *type, const char *text,
                    uint64_t value)
{
    add(out, "# HELP kvarve_%s %s\n# TYPE kvarve_%s %s\nkvarve_%s %" PRIu64 "\n", name, text, name,
        type, name, value);
}

static void add_statistic(text_buffer *out, const char *field, const char *text, uint64_t value)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%s%s", field, is_counter(field) ? "_total" : "");
    add_one(out, name, is_counter(field) ? "counter" : "gauge", text, value);
}

/* "KVARVE_MISS_TOKENS" as "tokens". */
static const char *reason_text(const char *constant, const char *prefix, char out[REASON_MAX])
{
    const char *rest = constant + strlen(prefix);
    size_t size = 0;

    while (rest[size] != '\0' && size + 1 < REASON_MAX) {
        out[size] =
            (char)(rest[size] >= 'A' && rest[size] <= 'Z' ? rest[size] - 'A' + 'a' : rest[size]);
        size++;
    }
    out[size] = '\0';
    return out;
}

/* All reasons but the first, which is none. */
static void add_reasons(text_buffer *out, const char *name, const char *const *reasons,
                        size_t count, const uint64_t *values)
{
    const char *prefix = strcmp(name, "misses") == 0 ? "KVARVE_MISS_" : "KVARVE_REFUSED_";
    char reason[REASON_MAX];

    for (size_t i = 1; i < count; i++) {
        add(out, "kvarve_%s_total{reason=\"%s\"} %" PRIu64 "\n", name,
            reason_text(reasons[i], prefix, reason), values[i]);
    }
}

static void add_all_reasons(text_buffer *out, const kvarve_statistics *store)
{
#define REASON_NAME(name, text) #name,
    static const char *const misses[] = {KVARVE_MISS_TABLE(REASON_NAME)};
    static const char *const refusals[] = {KVARVE_REFUSAL_TABLE(REASON_NAME)};
#undef REASON_NAME

    add(out, "# HELP kvarve_misses_total Finds and loads by the reason of the miss.\n"
             "# TYPE kvarve_misses_total counter\n");
    add_reasons(out, "misses", misses, sizeof misses / sizeof misses[0], store->misses);
    add(out, "# HELP kvarve_refusals_total Puts by the reason why they were not kept.\n"
             "# TYPE kvarve_refusals_total counter\n");
    add_reasons(out, "refusals", refusals, sizeof refusals / sizeof refusals[0], store->refusals);
}

size_t metrics_write(const kvarve_statistics *store, const daemon_figures *figures, char *out)
{
    text_buffer text = {.bytes = out};

#define STATISTIC_ROW(field, unit, sentence) add_statistic(&text, #field, sentence, store->field);
    KVARVE_STATISTIC_TABLE(STATISTIC_ROW)
#undef STATISTIC_ROW
    add_all_reasons(&text, store);
#define FIGURE_ROW(field, type, name, sentence)                                                    \
    add_one(&text, "daemon_" name, type, sentence, figures->field);
    DAEMON_FIGURE_TABLE(FIGURE_ROW)
#undef FIGURE_ROW
    return text.size;
}
