/*
 * assert.h - checks for bugs in this code base, never for bad input.
 *
 * KVARVE_ASSERT stays on in release builds and must be cheap.
 * KVARVE_ASSERT_EXPENSIVE is compiled in only with -DKVARVE_CHECKED=1.
 * Neither argument may have a side effect.
 *
 * A failed assertion calls the thread's handler, if one was set, then aborts.
 */
#ifndef KVARVE_BASE_ASSERT_H
#define KVARVE_BASE_ASSERT_H

typedef void (*kvarve_assert_handler)(const char *text);

/* Install `handler` for the calling thread (NULL: none). It may not return into the failed code. */
void kvarve_assert_set_handler(kvarve_assert_handler handler);

_Noreturn void kvarve_assert_fail(const char *expression, const char *file, int line);

#define KVARVE_ASSERT(expr) ((expr) ? (void)0 : kvarve_assert_fail(#expr, __FILE__, __LINE__))

#define KVARVE_UNREACHABLE() kvarve_assert_fail("unreachable", __FILE__, __LINE__)

#if defined(KVARVE_CHECKED) && KVARVE_CHECKED
#define KVARVE_ASSERT_EXPENSIVE(expr) KVARVE_ASSERT(expr)
#else
#define KVARVE_ASSERT_EXPENSIVE(expr) ((void)sizeof(!(expr)))
#endif

#endif
