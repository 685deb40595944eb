/* options_private.h - the part of options.c that is tested alone. Threads: any. */
#ifndef KVARVE_CLI_OPTIONS_PRIVATE_H
#define KVARVE_CLI_OPTIONS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

/* Read a decimal number; is_bytes: also with K, M, G, T (or KiB ...). False when it is anything
 * else or does not fit. */
bool option_read_number(const char *text, bool is_bytes, uint64_t *out);

#endif
