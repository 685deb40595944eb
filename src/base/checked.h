/* checked.h - arithmetic on sizes from outside. Each call is true when the result does not fit. */
#ifndef KVARVE_BASE_CHECKED_H
#define KVARVE_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVARVE_ADD_OVERFLOWS(a, b, out) __builtin_add_overflow(a, b, out)
#define KVARVE_MUL_OVERFLOWS(a, b, out) __builtin_mul_overflow(a, b, out)

/* `value` rounded up to a multiple of `unit`, a power of two. The caller has bounded `value`. */
static inline uint64_t kvarve_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

/* ceil(value / unit) for unit > 0, without overflow. */
static inline uint64_t kvarve_divide_up(uint64_t value, uint64_t unit)
{
    return value / unit + (value % unit != 0);
}

static inline uint64_t kvarve_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t kvarve_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
