/*
 * error.h - how every fallible call reports failure.
 *
 * A call returns one kvarve_status. The caller may also pass a kvarve_error to
 * receive the same status with a sentence for a human; it is left alone on
 * KVARVE_OK, and on KVARVE_MISS and KVARVE_BUSY, which are answers and carry no
 * text. The kvarve_error belongs to the caller, holds no pointers and needs no
 * clean-up, so errors are thread-safe by construction and can be reported when
 * memory is exhausted.
 *
 * KVARVE_UNAVAILABLE from a call on a store most often means that an assertion of kvarve's own
 * failed: the text names its place in the source, and is worth a report. That store is over, in
 * this and every later call, and the process lives on: go on as if nothing were stored. When the
 * call has returned, nothing of kvarve's touches memory of the caller's any more; addresses that
 * kvarve handed out stay readable. Release and close calls do nothing. The folder stays locked
 * until the process ends; then what was durable is found. No signal is caught.
 */
#ifndef KVARVE_ERROR_H
#define KVARVE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports; everything else is hidden. */
#define KVARVE_API       __attribute__((visibility("default")))
#define KVARVE_NODISCARD __attribute__((warn_unused_result))

/* One row per status: name, text. Order is part of the ABI: append only. */
#define KVARVE_STATUS_TABLE(ROW)                                                                   \
    ROW(KVARVE_OK, "success")                                                                      \
    ROW(KVARVE_MISS, "not stored here")                                                            \
    ROW(KVARVE_BUSY, "try again later")                                                            \
    ROW(KVARVE_NO_SPACE, "no space left in the tier")                                              \
    ROW(KVARVE_NO_MEMORY, "out of memory")                                                         \
    ROW(KVARVE_INVALID, "the caller broke the contract of the call")                               \
    ROW(KVARVE_IO, "the storage below failed")                                                     \
    ROW(KVARVE_CORRUPT, "stored bytes do not match their digest")                                  \
    ROW(KVARVE_UNSUPPORTED, "format or version is not supported")                                  \
    ROW(KVARVE_UNAVAILABLE, "the store or a remote tier does not answer")

typedef enum kvarve_status {
#define KVARVE_STATUS_ENUM(name, text) name,
    KVARVE_STATUS_TABLE(KVARVE_STATUS_ENUM)
#undef KVARVE_STATUS_ENUM
} kvarve_status;

/* Longest message, in bytes, terminating NUL included. Longer text is cut. */
#define KVARVE_ERROR_TEXT_MAX 192

typedef struct kvarve_error {
    kvarve_status status;             /* Always equals what the call returned. */
    int os_errno;                     /* The errno behind KVARVE_IO; 0 when there is none. */
    char text[KVARVE_ERROR_TEXT_MAX]; /* One line of UTF-8, no trailing newline. */
} kvarve_error;

/* A static, never-NULL description of `status`. Thread-safe. */
KVARVE_API const char *kvarve_status_text(kvarve_status status);

#ifdef __cplusplus
}
#endif

#endif
