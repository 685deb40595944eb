/*
 * log.h - the daemon's log: one line an event, `level component event key=value ...`, on stderr.
 *
 * Never in it: tokens, prompt text, identity documents, salts. A text that is no plain word stands
 * in quotes, with what is not printable as \xHH, so a line is always one line.
 *
 *     log_line line;
 *     log_begin(&line, log, LOG_LEVEL_INFO, "client", "connected");
 *     log_number(&line, "pid", pid);
 *     log_end(&line);
 *
 * Threads    One. Ownership  What is passed in is borrowed for the call.
 */
#ifndef KVARVE_DAEMON_LOG_H
#define KVARVE_DAEMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/clock.h"

/* Level, what the configuration calls it, the journal's priority. */
#define LOG_LEVEL_TABLE(ROW)                                                                       \
    ROW(LOG_LEVEL_ERROR, "error", 3)                                                               \
    ROW(LOG_LEVEL_WARNING, "warning", 4)                                                           \
    ROW(LOG_LEVEL_INFO, "info", 6)                                                                 \
    ROW(LOG_LEVEL_DEBUG, "debug", 7)

typedef enum log_level {
#define LOG_LEVEL_ENUM(name, text, priority) name,
    LOG_LEVEL_TABLE(LOG_LEVEL_ENUM)
#undef LOG_LEVEL_ENUM
} log_level;

/* "info"; NULL: no such level. */
const char *log_level_text(uint32_t level);

typedef struct daemon_log {
    log_level level;     /* what is below it is not written */
    bool is_journal;     /* priorities in front, and no time: the journal has it */
    kvarve_clock *clock; /* NULL: no time either */
    /* Where a whole line goes; NULL: stderr. */
    void (*write)(void *context, const char *line, size_t size);
    void *context;
} daemon_log;

#define LOG_LINE_MAX 1024
typedef struct log_line {
    const daemon_log *log; /* NULL: the level is not wanted */
    size_t size;
    char text[LOG_LINE_MAX];
} log_line;

void log_begin(log_line *line, const daemon_log *log, log_level level, const char *component,
               const char *event);
void log_number(log_line *line, const char *key, uint64_t value);
void log_text(log_line *line, const char *key, const char *value);
void log_end(log_line *line); /* writes it, cut if it is too long */

#endif
