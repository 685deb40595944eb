/*
 * open_over.h - the public calls over a door that is open already: for tests that make one.
 */
#ifndef KVARVE_API_OPEN_OVER_H
#define KVARVE_API_OPEN_OVER_H

#include "door/door.h"
#include "kvarve/store.h"

/* As kvarve_open; the door is the store's from here on, also when this fails. */
KVARVE_NODISCARD kvarve_status api_open_over(door *over, const kvarve_store_options *options,
                                             kvarve_store **out_store, kvarve_error *err);

#endif
