/* server.c - facts of a running server. Threads: any. */
#include "llama/server.h"

#include "base/fail.h"

kvarve_status llama_server_facts(const llama_server_options *options, llama_facts *facts,
                                 kvarve_error *err)
{
    (void)facts;
    return kvarve_fail(err, KVARVE_UNSUPPORTED, "asking %s is not built in yet", options->address);
}
