/* recover_private.h - what recover.c and identity.c share. */
#ifndef KVARVE_STORE_RECOVER_PRIVATE_H
#define KVARVE_STORE_RECOVER_PRIVATE_H

#include "format/store_file.h"
#include "store/store_private.h"

/* recover.c: DIR/name, or KVARVE_INVALID when that is too long. */
kvarve_status recover_path(const store_machine *store, const char *name, char out[KVARVE_PATH_MAX],
                           kvarve_error *err);
bool recover_has_flag(const store_machine *store, uint32_t flag); /* KVARVE_OPEN_... */

/* identity.c: before the lock, whose file is made where it is missing: KVARVE_MISS in a folder that
 * holds nothing of a store and is to become none, KVARVE_CORRUPT in one that lost its file `store`;
 * such a folder stays as it is. */
kvarve_status identity_seek(const store_machine *store, kvarve_error *err);

/* identity.c: read DIR/store, or write it for a folder that holds nothing of a store. */
kvarve_status identity_open(store_machine *store, store_file *file, kvarve_error *err);

#endif
