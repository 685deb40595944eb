/*
 * main.c - the program `kvarve`: finds the subcommand and hands it its part of the command line.
 *
 * Invariants
 *   I1  The program exits with a cli_exit, whatever happens on the way.
 *   I2  What a subcommand printed has reached stdout, or the exit code says that it did not.
 *
 * Threads    One; the store has its own.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cli/cli.h"
#include "env/terminal.h"

typedef struct command {
    const char *group;
    const char *name;
    int (*run)(int argument_count, char **arguments);
    const char *line;
} command;

static const command commands[] = {
#define COMMAND_ROW(group, name, function, line) {group, name, function, line},
    CLI_COMMAND_TABLE(COMMAND_ROW)
#undef COMMAND_ROW
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *to)
{
    static const char *const exits[] = {
#define EXIT_ROW(name, text) text,
        CLI_EXIT_TABLE(EXIT_ROW)
#undef EXIT_ROW
    };

    (void)fputs("kvarve keeps the state of LLM servers, so that a conversation survives the "
                "server.\n\nUsage: kvarve COMMAND [OPTION...]\n\n",
                to);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const command *c = &commands[i];
        const bool has_group = c->group[0] != '\0';
        (void)fprintf(to, "  %s%s%-*s %s\n", c->group, has_group ? " " : "",
                      (int)(has_group ? 15 - strlen(c->group) : 16), c->name, c->line);
    }
    (void)fputs("\n`kvarve COMMAND --help` explains each. Exit codes:\n\n", to);
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); i++) {
        (void)fprintf(to, "  %zu  %s\n", i, exits[i]);
    }
}

/* The command that the words name; *out_words is how many of them do. NULL: none. */
static const command *find_command(int argument_count, char **arguments, int *out_words)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const command *c = &commands[i];
        const int words = c->group[0] != '\0' ? 2 : 1;
        if (argument_count <= words || strcmp(arguments[words], c->name) != 0) {
            continue;
        }
        if (words == 2 && strcmp(arguments[1], c->group) != 0) {
            continue;
        }
        *out_words = words;
        return c;
    }
    return NULL;
}

static bool is_word(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

static bool asks_for_help(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        if (is_word(arguments[i], "--help", "-h") || strcmp(arguments[i], "help") == 0) {
            return true;
        }
    }
    return false;
}

static int run(int argument_count, char **arguments)
{
    int words = 0;
    const command *c = find_command(argument_count, arguments, &words);
    if (c != NULL) {
        return c->run(argument_count - words, arguments + words);
    }
    if (argument_count > 1 && is_word(arguments[1], "--version", "-V")) {
        (void)printf("kvarve %s, ABI version %u\n", KVARVE_VERSION_TEXT, kvarve_abi_version());
        return CLI_OK;
    }
    if (asks_for_help(argument_count, arguments)) {
        print_help(stdout);
        return CLI_OK;
    }
    if (argument_count > 1) {
        (void)fprintf(stderr, "kvarve: no command \"%s%s%s\"; try kvarve --help\n", arguments[1],
                      argument_count > 2 && arguments[2][0] != '-' ? " " : "",
                      argument_count > 2 && arguments[2][0] != '-' ? arguments[2] : "");
    } else {
        print_help(stderr);
    }
    return CLI_USAGE;
}

int main(int argument_count, char **arguments)
{
    terminal_ignore_broken_pipe();
    kvarve_assert_set_containing(false); /* there is no host to save, and a core says more */
    const int code = run(argument_count, arguments);
    if (fflush(stdout) != 0 && code == CLI_OK) { /* I2 */
        (void)fputs("kvarve: stdout could not be written\n", stderr);
        return CLI_FAILED;
    }
    return code;
}
