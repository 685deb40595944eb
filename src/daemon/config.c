/*
 * config.c - see config.h. Files are read by inih.
 *
 * Invariants
 *   F1  A value out of its range is refused with the place that it came from and the range, never
 *       clipped; so is a name that is not in the table.
 *   F2  Nothing is set twice by accident: a repeated option is refused, unless it is a list.
 *
 * Threads: one.
 */
#include "daemon/config.h"

#include <assert.h>
#include <ini.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/env_posix.h"
#include "env/io_all.h"

#define SECTION   "serve"
#define LINE_ROOM 200 /* what inih takes */

static const config_option options[] = {
#define CONFIG_ROW(name, field, kind, value, least, most, standard, text)                          \
    {name, value, text, offsetof(daemon_config, field), kind, least, most, standard},
    CONFIG_TABLE(CONFIG_ROW)
#undef CONFIG_ROW
};

#define OPTION_COUNT (sizeof options / sizeof options[0])
static_assert(OPTION_COUNT <= 64, "one bit each in `given`");

const config_option *config_option_at(size_t index)
{
    return index < OPTION_COUNT ? &options[index] : NULL;
}

static void *field_of(daemon_config *config, const config_option *option)
{
    return (char *)config + option->offset;
}

static bool is_number(const config_option *option)
{
    return option->kind != CONFIG_TEXT && option->kind != CONFIG_NAMES;
}

void config_begin(daemon_config *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (is_number(&options[i])) {
            *(uint64_t *)field_of(out, &options[i]) = options[i].standard;
        }
    }
}

void config_begin_flags(daemon_config *config)
{
    config->given = 0;
}

/* --- values --- */

static bool read_digits(const char *text, uint64_t base, uint64_t *out, const char **out_rest)
{
    const size_t digits = strspn(text, base == 8 ? "01234567" : "0123456789");
    uint64_t value = 0;

    for (size_t i = 0; i < digits; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');

        if (value > (UINT64_MAX - digit) / base) {
            return false;
        }
        value = value * base + digit;
    }
    *out = value;
    *out_rest = text + digits;
    return digits > 0;
}

/* K, M, G, T, also as KiB: the power of two. */
static bool read_unit(const char *text, unsigned *out_shift)
{
    static const char units[] = "KMGT";
    const char *unit = *text == '\0' ? NULL : strchr(units, *text);

    *out_shift = unit == NULL ? 0 : 10 * (unsigned)(unit - units + 1);
    if (unit == NULL) {
        return *text == '\0';
    }
    return text[1] == '\0' || strcmp(text + 1, "iB") == 0 || strcmp(text + 1, "i") == 0;
}

static bool read_level(const char *text, uint64_t *out)
{
    for (uint32_t i = 0; log_level_text(i) != NULL; i++) {
        if (strcmp(text, log_level_text(i)) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool read_flag(const char *text, uint64_t *out)
{
    static const char *const no_yes[] = {"no", "yes", "false", "true", "0", "1"};

    for (size_t i = 0; i < sizeof no_yes / sizeof no_yes[0]; i++) {
        if (strcmp(text, no_yes[i]) == 0) {
            *out = i % 2;
            return true;
        }
    }
    return false;
}

static bool read_value(const config_option *option, const char *text, uint64_t *out)
{
    const char *rest = text;
    unsigned shift = 0;

    if (option->kind == CONFIG_LEVEL) {
        return read_level(text, out);
    }
    if (option->kind == CONFIG_FLAG) {
        return read_flag(text, out);
    }
    if (!read_digits(text, option->kind == CONFIG_MODE ? 8 : 10, out, &rest)) {
        return false;
    }
    if (option->kind == CONFIG_BYTES ? !read_unit(rest, &shift) : *rest != '\0') {
        return false;
    }
    if (*out > UINT64_MAX >> shift) {
        return false;
    }
    *out <<= shift;
    return *out >= option->least && *out <= option->most;
}

/* A size as one writes it. */
static const char *size_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t unit = 0;

    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(out, 32, "%" PRIu64 "%s", bytes, units[unit]);
    return out;
}

static kvarve_status refuse_value(const config_option *option, const char *value, const char *where,
                                  kvarve_error *err)
{
    char least[32];
    char most[32];

    switch (option->kind) {
    case CONFIG_LEVEL:
        return kvarve_fail(err, KVARVE_INVALID,
                           "%.60s: %s \"%.40s\": it is error, warning, info or debug", where,
                           option->name, value);
    case CONFIG_FLAG:
        return kvarve_fail(err, KVARVE_INVALID, "%.60s: %s \"%.40s\": it is yes or no", where,
                           option->name, value);
    case CONFIG_MODE:
        return kvarve_fail(err, KVARVE_INVALID,
                           "%.60s: %s \"%.40s\": it is octal, %" PRIo64 " .. %" PRIo64, where,
                           option->name, value, option->least, option->most);
    case CONFIG_BYTES:
        return kvarve_fail(err, KVARVE_INVALID,
                           "%.60s: %s \"%.40s\": it is a size (as 64M or 2G), %s .. %s", where,
                           option->name, value, size_text(option->least, least),
                           size_text(option->most, most));
    case CONFIG_COUNT:
    case CONFIG_TEXT:
    case CONFIG_NAMES:
        break;
    }
    return kvarve_fail(err, KVARVE_INVALID,
                       "%.60s: %s \"%.40s\": it is a number, %" PRIu64 " .. %" PRIu64, where,
                       option->name, value, option->least, option->most);
}

static kvarve_status set_text(const config_option *option, size_t room, const char *value,
                              char *out, const char *where, kvarve_error *err)
{
    const size_t most = option->most != 0 ? option->most : room - 1;
    const size_t length = strlen(value);

    if (length < option->least || length > most) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "%.60s: %s of %zu characters: it has %" PRIu64 " .. %zu", where,
                           option->name, length, option->least, most);
    }
    memcpy(out, value, length + 1);
    return KVARVE_OK;
}

static kvarve_status add_name(const config_option *option, config_names *names, const char *value,
                              const char *where, kvarve_error *err)
{
    kvarve_status status;

    if (names->count == CONFIG_NAMES_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "%.60s: %s is given more than %d times", where,
                           option->name, CONFIG_NAMES_MAX);
    }
    status = set_text(option, CONFIG_NAME_MAX, value, names->text[names->count], where, err);
    names->count += status == KVARVE_OK ? 1 : 0;
    return status;
}

static kvarve_status set_field(daemon_config *config, const config_option *option, bool is_first,
                               const char *value, const char *where, kvarve_error *err)
{
    void *field = field_of(config, option);
    uint64_t number = 0;

    if (option->kind == CONFIG_TEXT) {
        return set_text(option, CONFIG_PATH_MAX, value, field, where, err);
    }
    if (option->kind == CONFIG_NAMES) {
        config_names *names = field;

        names->count = is_first ? 0 : names->count; /* flags take the place of the file's list */
        return add_name(option, names, value, where, err);
    }
    if (!read_value(option, value, &number)) {
        return refuse_value(option, value, where, err); /* F1 */
    }
    *(uint64_t *)field = number;
    return KVARVE_OK;
}

kvarve_status config_set(daemon_config *config, const char *name, const char *value,
                         const char *where, kvarve_error *err)
{
    size_t index = 0;

    while (index < OPTION_COUNT && strcmp(options[index].name, name) != 0) {
        index++;
    }
    if (index == OPTION_COUNT) {
        return kvarve_fail(err, KVARVE_INVALID, "%.60s: there is no option \"%.60s\"", where, name);
    }
    const uint64_t bit = UINT64_C(1) << index;
    const bool is_first = (config->given & bit) == 0;
    if (!is_first && options[index].kind != CONFIG_NAMES) { /* F2 */
        return kvarve_fail(err, KVARVE_INVALID, "%.60s: %s is given twice", where, name);
    }
    config->given |= bit;
    return set_field(config, &options[index], is_first, value, where, err);
}

/* --- files --- */

typedef struct file_reading {
    daemon_config *config;
    const char *name;
    const char *at; /* what inih has not asked for yet */
    unsigned line;
    kvarve_error *err;
    kvarve_status status; /* the first failure */
} file_reading;

/* inih's reader: the next line, as fgets would give it. */
static char *next_line(char *out, int room, void *context)
{
    file_reading *reading = context;
    const char *end = strchr(reading->at, '\n');
    const size_t size = end == NULL ? strlen(reading->at) : (size_t)(end - reading->at) + 1;

    if (size == 0 || reading->status != KVARVE_OK) {
        return NULL;
    }
    reading->line++;
    if (size >= (size_t)room) {
        reading->status = kvarve_fail(reading->err, KVARVE_INVALID,
                                      "%.100s:%u: the line has %zu characters, it may have %d",
                                      reading->name, reading->line, size, room - 2);
        return NULL;
    }
    memcpy(out, reading->at, size);
    out[size] = '\0';
    reading->at += size;
    return out;
}

static int take_option(void *context, const char *section, const char *name, const char *value)
{
    file_reading *reading = context;
    char where[80];

    if (reading->status != KVARVE_OK) {
        return 1; /* the first one is told */
    }
    (void)snprintf(where, sizeof where, "%.60s:%u", reading->name, reading->line);
    if (section[0] != '\0' && strcmp(section, SECTION) != 0) {
        reading->status =
            kvarve_fail(reading->err, KVARVE_INVALID, "%s: there is no section [%.40s], only [%s]",
                        where, section, SECTION);
        return 1;
    }
    reading->status = config_set(reading->config, name, value, where, reading->err);
    return 1;
}

kvarve_status config_read_text(daemon_config *config, const char *text, const char *name,
                               kvarve_error *err)
{
    file_reading reading = {.config = config, .name = name, .at = text, .err = err};
    const int wrong = ini_parse_stream(next_line, &reading, take_option, &reading);

    if (reading.status == KVARVE_OK && wrong != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "%.100s:%d: it is no \"name = value\"", name,
                           wrong);
    }
    return reading.status;
}

/* The end of a path, so that a message has room for more. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strlen(path) <= 60 || slash == NULL ? path : slash + 1;
}

kvarve_status config_read(daemon_config *config, const char *path, kvarve_error *err)
{
    size_t size = 0;
    char *text = NULL;
    kvarve_status status = io_read_file(io_posix(), path, CONFIG_FILE_MAX, &text, &size, err);

    if (status != KVARVE_OK) {
        return status == KVARVE_MISS ? kvarve_fail(err, KVARVE_INVALID, "there is no %.120s", path)
                                     : status;
    }
    status = strlen(text) == size
                 ? config_read_text(config, text, short_name(path), err)
                 : kvarve_fail(err, KVARVE_INVALID, "%.120s: there is a NUL in it", path);
    kvarve_release(text);
    return status;
}

void config_store_options(const daemon_config *config, kvarve_store_options *out)
{
    *out = (kvarve_store_options)KVARVE_STORE_OPTIONS_INIT;
    out->arena_bytes = config->arena_bytes;
    out->flash_bytes_max = config->flash_bytes_max;
    out->segment_bytes = config->segment_bytes;
    out->checkpoints_max = config->checkpoints_max;
    out->pool_threads = (uint32_t)config->pool_threads;
    out->wait_ms = (uint32_t)config->wait_ms;
    out->io_timeout_ms = (uint32_t)config->io_timeout_ms;
    out->flags = config->is_buffered != 0 ? KVARVE_OPEN_BUFFERED : 0;
}
