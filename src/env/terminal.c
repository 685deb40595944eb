/* terminal.c - terminals and signals, for the command line. Threads: one. */
#include "env/terminal.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "base/assert.h"

bool terminal_has_stderr(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void terminal_ignore_broken_pipe(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    const int result = sigaction(SIGPIPE, &ignore, NULL);
    KVARVE_ASSERT(result == 0);
}
