/*
 * open_in.h - the public calls in a world of the caller's: for tests that run a store in the
 * simulated host.
 *
 * No thread is made: jobs run when a call waits. One thread only. The world outlives the store.
 */
#ifndef KVARVE_API_OPEN_IN_H
#define KVARVE_API_OPEN_IN_H

#include "env/env.h"
#include "kvarve/store.h"

/* As kvarve_open. */
KVARVE_NODISCARD kvarve_status api_open_in(const kvarve_env *env, const char *endpoint,
                                           const kvarve_store_options *options,
                                           kvarve_store **out_store, kvarve_error *err);

#endif
