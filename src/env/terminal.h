/* terminal.h - what a program that talks to people asks of the system. Threads: one. */
#ifndef KVARVE_ENV_TERMINAL_H
#define KVARVE_ENV_TERMINAL_H

#include <stdbool.h>

/* Whether stderr is a terminal. */
bool terminal_has_stderr(void);

/* Writing to a closed pipe is an error of that write from now on, and does not end the process. */
void terminal_ignore_broken_pipe(void);

#endif
