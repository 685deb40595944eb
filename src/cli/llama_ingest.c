/* llama_ingest.c - `kvarve llama ingest`: store a slot file. Threads: one. */
#include "cli/cli.h"

int cli_llama_ingest(int argument_count, char **arguments)
{
    (void)argument_count;
    (void)arguments;
    return cli_fail_text(false, CLI_UNSUPPORTED, "llama ingest is not built in yet");
}
