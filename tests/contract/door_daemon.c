/*
 * door_daemon.c - see door_daemon.h.
 */
#include "contract/door_daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define TRIES      400u
#define TRY_MS     25u
#define STATUS_OUT 100 /* added to the status that the child ends with */

/* The child: serve until SIGTERM. */
_Noreturn static void serve(const char *folder, const char *socket,
                            const kvarve_store_options *options)
{
    daemon_options daemon = {0};
    daemon_config *config = &daemon.config;
    kvarve_error err = {0};
    kvarve_status status;

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive a test that is killed */
    config_begin(config);
    (void)snprintf(config->store, sizeof config->store, "%s", folder);
    (void)snprintf(config->socket, sizeof config->socket, "%s", socket);
    config->arena_bytes = options->arena_bytes;
    config->flash_bytes_max = options->flash_bytes_max;
    config->segment_bytes = options->segment_bytes;
    config->pool_threads = options->pool_threads;
    config->io_timeout_ms = options->io_timeout_ms;
    if (options->checkpoints_max != 0) {
        config->checkpoints_max = options->checkpoints_max;
    }
    config->log_level = LOG_LEVEL_ERROR;
    status = daemon_run(&daemon, &err);
    if (status != KVARVE_OK) {
        (void)fprintf(stderr, "daemon: %s\n", err.text);
    }
    _exit(STATUS_OUT + (int)status);
}

/* Has it ended already? Then with what. */
static bool has_ended(pid_t pid, kvarve_status *out)
{
    int how = 0;

    if (waitpid(pid, &how, WNOHANG) != pid) {
        return false;
    }
    *out = WIFEXITED(how) && WEXITSTATUS(how) > STATUS_OUT
               ? (kvarve_status)(WEXITSTATUS(how) - STATUS_OUT)
               : KVARVE_UNAVAILABLE;
    return true;
}

kvarve_status door_daemon_start(const char *folder, const char *socket,
                                const kvarve_store_options *options, pid_t *out_pid,
                                kvarve_store **out_store, kvarve_error *err)
{
    kvarve_store_options client = *options;
    kvarve_status status = KVARVE_UNAVAILABLE;
    char endpoint[128];
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        serve(folder, socket, options);
    }
    (void)snprintf(endpoint, sizeof endpoint, "unix:%s", socket);
    client.wait_ms = TRY_MS;
    for (unsigned i = 0; i < TRIES && status == KVARVE_UNAVAILABLE; i++) {
        if (has_ended(pid, &status)) {
            return status;
        }
        status = kvarve_open(endpoint, &client, out_store, err);
    }
    if (status != KVARVE_OK) {
        door_daemon_stop(pid);
        return status;
    }
    *out_pid = pid;
    return KVARVE_OK;
}

void door_daemon_stop(pid_t pid)
{
    int how = 0;

    if (pid == 0) {
        return;
    }
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), STATUS_OUT);
}
