/*
 * log.c - see log.h.
 *
 * Invariants
 *   G1  A line is written by one call, and whatever a text holds it stays one line of printable
 *       characters: nobody can forge another one.
 *
 * Threads: one.
 */
#include "daemon/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400

static const struct {
    const char *text;
    int priority;
} levels[] = {
#define LOG_LEVEL_ROW(name, text, priority) {text, priority},
    LOG_LEVEL_TABLE(LOG_LEVEL_ROW)
#undef LOG_LEVEL_ROW
};

const char *log_level_text(uint32_t level)
{
    return level < sizeof levels / sizeof levels[0] ? levels[level].text : NULL;
}

__attribute__((format(printf, 2, 3))) static void add(log_line *line, const char *format, ...)
{
    const size_t room = sizeof line->text - 1 - line->size; /* one stays for the line's end */
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(line->text + line->size, room, format, arguments);
    va_end(arguments);
    if (size > 0) {
        line->size += (size_t)size < room ? (size_t)size : room - 1;
    }
}

/* The date of a day since 1970, in the calendar that everybody has. */
static void add_time(log_line *line, int64_t wall_s)
{
    const int64_t second = wall_s % DAY_S;
    const int64_t day = wall_s / DAY_S + 719468; /* since March 1st of the year 0 */
    const int64_t era = day / 146097;            /* 400 years */
    const int64_t of_era = day % 146097;
    const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    const int64_t month = (5 * of_year + 2) / 153; /* 0 is March */

    add(line,
        "%04" PRId64 "-%02" PRId64 "-%02" PRId64 "T%02" PRId64 ":%02" PRId64 ":%02" PRId64 "Z ",
        year + era * 400 + (month >= 10 ? 1 : 0), month < 10 ? month + 3 : month - 9,
        of_year - (153 * month + 2) / 5 + 1, second / 3600, second / 60 % 60, second % 60);
}

void log_begin(log_line *line, const daemon_log *log, log_level level, const char *component,
               const char *event)
{
    line->log = level <= log->level ? log : NULL;
    line->size = 0;
    if (line->log == NULL) {
        return;
    }
    if (log->is_journal) {
        add(line, "<%d>", levels[level].priority);
    } else if (log->clock != NULL) {
        add_time(line, log->clock->wall_s(log->clock));
    }
    add(line, "%s %s %s", levels[level].text, component, event);
}

void log_number(log_line *line, const char *key, uint64_t value)
{
    if (line->log != NULL) {
        add(line, " %s=%" PRIu64, key, value);
    }
}

static bool is_plain(const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-./:+@%,";

    return value[0] != '\0' && value[strspn(value, plain)] == '\0';
}

void log_text(log_line *line, const char *key, const char *value)
{
    if (line->log == NULL) {
        return;
    }
    if (is_plain(value)) {
        add(line, " %s=%s", key, value);
        return;
    }
    add(line, " %s=\"", key);
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            add(line, "\\%c", *at);
        } else if (*at < ' ' || *at > '~') { /* G1 */
            add(line, "\\x%02x", (unsigned)(unsigned char)*at);
        } else {
            add(line, "%c", *at);
        }
    }
    add(line, "\"");
}

void log_end(log_line *line)
{
    if (line->log == NULL) {
        return;
    }
    line->text[line->size++] = '\n';
    if (line->log->write != NULL) {
        line->log->write(line->log->context, line->text, line->size);
    } else {
        (void)fwrite(line->text, 1, line->size, stderr);
    }
}
