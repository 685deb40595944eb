/*
 * test_io_posix.c - the contract of io.h over the real files, in a temporary directory.
 */
#include <string.h>
#include <sys/stat.h>

#include "contract/io_contract.h"
#include "env/env_posix.h"
#include "support/scratch.h"

static io_contract contract;

static int setup(void **state)
{
    (void)umask(022);
    contract.io = io_posix();
    scratch_make(contract.root);
    *state = &contract;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(contract.root);
    return 0;
}

int main(void)
{
    return io_contract_run(setup, teardown);
}
