/*
 * config.h - what a daemon is told: one table of options, from which the file, the flags of `kvarve
 * serve` and their --help come.
 *
 *     daemon_config config;
 *     config_begin(&config);
 *     config_read(&config, "/etc/kvarve/kvarve.conf", err);       what the file says
 *     config_begin_flags(&config);                                from now on it is overruled
 *     config_set(&config, "arena", "2G", "--arena", err);
 *
 * Threads    One. Ownership  Everything is copied.
 */
#ifndef KVARVE_DAEMON_CONFIG_H
#define KVARVE_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/log.h"
#include "kvarve/error.h"
#include "kvarve/store.h"

#define CONFIG_PATH_MAX  1024
#define CONFIG_NAMES_MAX 16
#define CONFIG_NAME_MAX  64
#define CONFIG_FILE_MAX  65536

/* Users or groups, as they were written: names or numbers. */
typedef struct config_names {
    char text[CONFIG_NAMES_MAX][CONFIG_NAME_MAX];
    size_t count;
} config_names;

typedef enum config_kind {
    CONFIG_TEXT,  /* char[CONFIG_PATH_MAX] */
    CONFIG_NAMES, /* config_names: may be repeated */
    CONFIG_COUNT, /* uint64_t, decimal */
    CONFIG_BYTES, /* uint64_t, decimal with K, M, G or T */
    CONFIG_MODE,  /* uint64_t, octal */
    CONFIG_LEVEL, /* uint64_t, a log_level by its name */
    CONFIG_FLAG,  /* uint64_t: yes or no */
} config_kind;

/* The value of a CONFIG_COUNT that stands for "not wanted". */
#define CONFIG_OFF UINT64_MAX

#define CONFIG_KIB(n) (UINT64_C(n) << 10)
#define CONFIG_MIB(n) (UINT64_C(n) << 20)
#define CONFIG_GIB(n) (UINT64_C(n) << 30)

/* ROW(name, field, kind, what --help calls its value, least, most, without it, sentences) */
#define CONFIG_TABLE(ROW)                                                                          \
    ROW("store", store, CONFIG_TEXT, "DIR", 1, 0, 0,                                               \
        "The store's folder, made if absent (mode 0700).")                                         \
    ROW("socket", socket, CONFIG_TEXT, "PATH", 1, 107, 0,                                          \
        "Listen here. One that a service manager hands over is used instead.")                     \
    ROW("socket-mode", socket_mode, CONFIG_MODE, "OCTAL", 0, 0777, CONFIG_OFF,                     \
        "Mode of the socket's file. Default: 600, or 666 where others than the daemon's own "      \
        "user are allowed.")                                                                       \
    ROW("allow-user", users, CONFIG_NAMES, "USER", 1, 0, 0,                                        \
        "This user, by name or number, may connect, too. May be repeated. The daemon's own user "  \
        "always may.")                                                                             \
    ROW("allow-group", groups, CONFIG_NAMES, "GROUP", 1, 0, 0,                                     \
        "Members of this group may connect, too. May be repeated.")                                \
    ROW("arena", arena_bytes, CONFIG_BYTES, "BYTES", CONFIG_MIB(1), CONFIG_GIB(16384),             \
        CONFIG_MIB(256), "RAM for pages, as 64M or 2G. Default: 256M.")                            \
    ROW("flash-max", flash_bytes_max, CONFIG_BYTES, "BYTES", CONFIG_MIB(1), CONFIG_GIB(1048576),   \
        0, "Cap of all files of the store. Default: a tenth of the disk.")                         \
    ROW("segment", segment_bytes, CONFIG_BYTES, "BYTES", CONFIG_MIB(1), CONFIG_GIB(64),            \
        CONFIG_MIB(64), "Size of one segment file. Default: 64M.")                                 \
    ROW("checkpoints-max", checkpoints_max, CONFIG_COUNT, "N", 1, UINT64_C(1) << 32,               \
        UINT64_C(1) << 22, "Checkpoints that are known at most. Default: 4194304.")                \
    ROW("pool-threads", pool_threads, CONFIG_COUNT, "N", 1, 64, 4,                                 \
        "Threads for disk and copies. Default: 4.")                                                \
    ROW("io-timeout", io_timeout_ms, CONFIG_COUNT, "MS", 1, 86400000, 30000,                       \
        "Deadline of a load or put without one of its own. Default: 30000.")                       \
    ROW("buffered", is_buffered, CONFIG_FLAG, "YES|NO", 0, 0, 0,                                   \
        "Do not try direct I/O. Default: no.")                                                     \
    ROW("wait", wait_ms, CONFIG_COUNT, "MS", 0, 86400000, 0,                                       \
        "Wait so long for a store that another process has open, then name its pid. "              \
        "Default: 0.")                                                                             \
    ROW("clients-max", clients_max, CONFIG_COUNT, "N", 1, 4096, 256,                               \
        "Connections at once. Default: 256.")                                                      \
    ROW("shutdown-timeout", shutdown_timeout_s, CONFIG_COUNT, "S", 1, 86400, 60,                   \
        "How long an orderly end may take after SIGTERM. Default: 60.")                            \
    ROW("metrics-port", metrics_port, CONFIG_COUNT, "PORT", 0, 65535, CONFIG_OFF,                  \
        "Answer /metrics (for Prometheus) and /healthz by HTTP at 127.0.0.1:PORT; 0: a free "      \
        "port, which the log names. Default: off.")                                                \
    ROW("log-level", log_level, CONFIG_LEVEL, "LEVEL", 0, 0, LOG_LEVEL_INFO,                       \
        "error, warning, info or debug. Default: info.")

#define CONFIG_FIELD_TYPE_CONFIG_TEXT(field)  char field[CONFIG_PATH_MAX];
#define CONFIG_FIELD_TYPE_CONFIG_NAMES(field) config_names field;
#define CONFIG_FIELD_TYPE_CONFIG_COUNT(field) uint64_t field;
#define CONFIG_FIELD_TYPE_CONFIG_BYTES(field) uint64_t field;
#define CONFIG_FIELD_TYPE_CONFIG_MODE(field)  uint64_t field;
#define CONFIG_FIELD_TYPE_CONFIG_LEVEL(field) uint64_t field;
#define CONFIG_FIELD_TYPE_CONFIG_FLAG(field)  uint64_t field;

typedef struct daemon_config {
#define CONFIG_FIELD(name, field, kind, value, least, most, standard, text)                        \
    CONFIG_FIELD_TYPE_##kind(field)
    CONFIG_TABLE(CONFIG_FIELD)
#undef CONFIG_FIELD
    uint64_t given; /* a bit for each row: set since config_begin or config_begin_flags */
} daemon_config;

/* A row of the table. */
typedef struct config_option {
    const char *name;
    const char *value;
    const char *text;
    size_t offset; /* of the field in daemon_config */
    config_kind kind;
    uint64_t least; /* CONFIG_TEXT, CONFIG_NAMES: characters */
    uint64_t most;  /* the same; 0: what fits */
    uint64_t standard;
} config_option;

/* The row at `index`; NULL: the table has ended. */
const config_option *config_option_at(size_t index);

void config_begin(daemon_config *out);
void config_begin_flags(daemon_config *config);

/*
 * Set one option by its name. `where` begins the text of an error: "--arena", "kvarve.conf:3".
 * KVARVE_INVALID: no such option, no such value (err has the range), or it was given before.
 */
KVARVE_NODISCARD kvarve_status config_set(daemon_config *config, const char *name,
                                          const char *value, const char *where, kvarve_error *err);

/* Read a file in INI form; its section, if it has one, is [serve]. KVARVE_INVALID as above, with
 * file and line; KVARVE_IO: it can not be read. */
KVARVE_NODISCARD kvarve_status config_read(daemon_config *config, const char *path,
                                           kvarve_error *err);
/* The same of a text that is in memory. */
KVARVE_NODISCARD kvarve_status config_read_text(daemon_config *config, const char *text,
                                                const char *name, kvarve_error *err);

/* What the store is opened with: complete. */
void config_store_options(const daemon_config *config, kvarve_store_options *out);

#endif
