/*
 * io_contract.h - what every implementation of env/io.h promises, as test cases.
 *
 * A program for one implementation sets io and root in its setup and runs io_contract_run.
 */
#ifndef KVARVE_TESTS_IO_CONTRACT_H
#define KVARVE_TESTS_IO_CONTRACT_H

#include "env/io.h"

typedef struct io_contract {
    kvarve_io *io;
    char root[256]; /* an empty directory, new for each case */
} io_contract;

/* `setup` fills *state with an io_contract; both are called around each case. cmocka's result. */
int io_contract_run(int (*setup)(void **state), int (*teardown)(void **state));

#endif
