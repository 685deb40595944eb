/* llama_emit.c - `kvarve llama emit`: write a slot file. Threads: one. */
#include "cli/cli.h"

int cli_llama_emit(int argument_count, char **arguments)
{
    (void)argument_count;
    (void)arguments;
    return cli_fail_text(false, CLI_UNSUPPORTED, "llama emit is not built in yet");
}
