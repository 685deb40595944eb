/*
 * assert.h - checks for bugs in this code base, never for bad input.
 *
 * KVARVE_ASSERT stays on in release builds and must be cheap.
 * KVARVE_ASSERT_EXPENSIVE is compiled in only with -DKVARVE_CHECKED=1.
 * Neither argument may have a side effect.
 *
 * A failed assertion calls the thread's handler, if one was set, then aborts.
 *
 * Threads  Handlers are a thread's own. The choice between containing and ending is the process's.
 */
#ifndef KVARVE_BASE_ASSERT_H
#define KVARVE_BASE_ASSERT_H

#include <stdbool.h>

/* `text`: "src/store/put.c:115: assertion failed: put->page_count == 0"; gone when it returns. */
typedef void (*kvarve_assert_handler)(const char *text);

/*
 * Install `handler` for the calling thread (NULL: none); what was there before. It may not return
 * into the failed code: it jumps, or never returns. It is called once: a failure inside of it ends
 * the process.
 */
kvarve_assert_handler kvarve_assert_set_handler(kvarve_assert_handler handler);

/*
 * Does the library contain failures, by handlers of its own (docs/design/0003), or does the process
 * end at the first one, where its cause can still be seen? Contained in a library, ended in builds
 * with KVARVE_CHECKED; programs of ours and tests choose, before they open a store.
 */
void kvarve_assert_set_containing(bool is_containing);
bool kvarve_assert_is_containing(void);

_Noreturn void kvarve_assert_fail(const char *expression, const char *file, int line);

#define KVARVE_ASSERT(expr) ((expr) ? (void)0 : kvarve_assert_fail(#expr, __FILE__, __LINE__))

#define KVARVE_UNREACHABLE() kvarve_assert_fail("unreachable", __FILE__, __LINE__)

#if defined(KVARVE_CHECKED) && KVARVE_CHECKED
#define KVARVE_ASSERT_EXPENSIVE(expr) KVARVE_ASSERT(expr)
#else
#define KVARVE_ASSERT_EXPENSIVE(expr) ((void)sizeof(!(expr)))
#endif

#endif
