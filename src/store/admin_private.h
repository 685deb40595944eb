/* admin_private.h - what admin.c and verify.c share. */
#ifndef KVARVE_STORE_ADMIN_PRIVATE_H
#define KVARVE_STORE_ADMIN_PRIVATE_H

#include "store/store_private.h"

/* Neither leased nor waiting for its commit; for a base, nor is its companion. */
bool checkpoint_may_go(const store_checkpoint *checkpoint);

/*
 * Drop a checkpoint that may go: a base with its companion, a companion alone. False: no memory to
 * note it; what could not be dropped stays whole.
 */
bool checkpoint_let_go(store_machine *store, store_checkpoint *checkpoint);

#endif
