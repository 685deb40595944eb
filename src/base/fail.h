/*
 * fail.h - the only way library code creates an error.
 *
 * `return kvarve_fail(err, status, ...)` sets the text and yields the status in
 * one expression, so the two can not drift apart.
 */
#ifndef KVARVE_BASE_FAIL_H
#define KVARVE_BASE_FAIL_H

#include "kvarve/error.h"

/* Fill `err` unless it is NULL; return `status`, which must not be KVARVE_OK. */
__attribute__((format(printf, 3, 4))) kvarve_status kvarve_fail(kvarve_error *err,
                                                                kvarve_status status,
                                                                const char *format, ...);

/*
 * The same for a failed io call: `negative_errno` is what the call returned.
 * ENOSPC and EDQUOT become KVARVE_NO_SPACE, ENOMEM KVARVE_NO_MEMORY, the rest KVARVE_IO.
 */
__attribute__((format(printf, 3, 4))) kvarve_status kvarve_fail_io(kvarve_error *err,
                                                                   int negative_errno,
                                                                   const char *format, ...);

#endif
