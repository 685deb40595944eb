/*
 * options.c - the command line of a subcommand, read from its table of options, and its --help.
 *
 * Invariants
 *   I1  A value out of its range is refused with the option's name and the range, never clipped.
 *   I2  Everything that is read is also in --help: both come from one table.
 *
 * Threads    One (getopt has global state).
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options_private.h"

#define OPTIONS_MAX 48
#define COLUMNS     96
#define INDENT      26

/* getopt's number of the option at `index` of the table. */
#define OPTION_CODE 256

static size_t count_options(const cli_option *options)
{
    size_t count = 0;
    while (options[count].name != NULL) {
        count++;
    }
    return count;
}

/* Print words, wrapped behind the indent, where the cursor is. */
static void print_wrapped(const char *text)
{
    size_t column = INDENT;

    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        const bool is_first = column == INDENT;
        if (!is_first && column + 1 + word > COLUMNS) {
            (void)printf("\n%*s", INDENT, "");
            column = INDENT;
        } else if (!is_first) {
            (void)putchar(' ');
            column++;
        }
        (void)printf("%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    (void)putchar('\n');
}

static void print_option(const cli_option *option)
{
    char head[80];
    const bool has_value = option->value != NULL;
    char letter[8] = "    ";
    if (option->letter != 0) {
        (void)snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    }
    (void)snprintf(head, sizeof(head), "  %s--%s%s%s", letter, option->name, has_value ? " " : "",
                   has_value ? option->value : "");
    size_t column = strlen(head);
    (void)fputs(head, stdout);
    if (column + 1 >= INDENT) {
        (void)putchar('\n');
        column = 0;
    }
    (void)printf("%*s", (int)(INDENT - column), "");
    print_wrapped(option->help);
}

static void print_help(const cli_usage *usage, const cli_option *options)
{
    (void)printf("Usage: kvarve %s\n\n%s\n\nOptions:\n", usage->synopsis, usage->about);
    for (size_t i = 0; options[i].name != NULL; i++) {
        print_option(&options[i]);
    }
    (void)printf("  %s%-*s %s\n", "-h, ", INDENT - 7, "--help", "Print this.");
    if (usage->below != NULL) {
        (void)printf("\n%s\n", usage->below);
    }
}

/* The power of two that a unit stands for; false when it is none. */
static bool read_unit(const char *unit, unsigned *out_shift)
{
    static const char units[] = "KMGT";
    if (*unit == '\0') {
        *out_shift = 0;
        return true;
    }
    const char *found = strchr(units, *unit);
    if (found == NULL) {
        return false;
    }
    const char *rest = unit + 1;
    if (strcmp(rest, "") != 0 && strcmp(rest, "iB") != 0 && strcmp(rest, "i") != 0) {
        return false;
    }
    *out_shift = 10 * (unsigned)(found - units + 1);
    return true;
}

bool option_read_number(const char *text, bool is_bytes, uint64_t *out)
{
    uint64_t value = 0;
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    unsigned shift = 0;
    if (is_bytes ? !read_unit(text + digits, &shift) : text[digits] != '\0') {
        return false;
    }
    if (value > UINT64_MAX >> shift) {
        return false;
    }
    *out = value << shift;
    return true;
}

static bool set_number(const cli_option *option, const char *text)
{
    uint64_t value = 0;
    const uint64_t maximum = option->maximum == 0 ? UINT64_MAX : option->maximum;
    if (!option_read_number(text, option->kind == CLI_BYTES, &value)) {
        (void)fprintf(stderr, "kvarve: --%s: \"%s\" is no %s\n", option->name, text,
                      option->kind == CLI_BYTES ? "size (as 65536, 64M or 2G)" : "number");
        return false;
    }
    if (value < option->minimum || value > maximum) { /* I1 */
        (void)fprintf(stderr, "kvarve: --%s: %s is not within %" PRIu64 " .. %" PRIu64 "\n",
                      option->name, text, option->minimum, maximum);
        return false;
    }
    *(uint64_t *)option->target = value;
    return true;
}

static bool set_option(const cli_option *option, const char *text)
{
    cli_texts *list = option->target;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->target = true;
        return true;
    case CLI_TEXT:
        *(const char **)option->target = text;
        return true;
    case CLI_LIST:
        if (list->count == CLI_TEXTS_MAX) {
            (void)fprintf(stderr, "kvarve: --%s is given more than %d times\n", option->name,
                          CLI_TEXTS_MAX);
            return false;
        }
        list->text[list->count++] = text;
        return true;
    case CLI_COUNT:
    case CLI_BYTES:
        return set_number(option, text);
    }
    return false;
}

/* getopt's own tables. */
typedef struct getopt_tables {
    struct option long_options[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 4];
} getopt_tables;

/* Add a short form to getopt's text of them. */
static void add_letter(getopt_tables *tables, const cli_option *option)
{
    const size_t length = strlen(tables->letters);

    if (option->letter != 0) {
        tables->letters[length] = option->letter;
        tables->letters[length + 1] = option->kind == CLI_FLAG ? '\0' : ':';
    }
}

static void fill_tables(const cli_option *options, size_t count, getopt_tables *out)
{
    out->letters[0] = 'h';
    for (size_t i = 0; i < count; i++) {
        out->long_options[i] = (struct option){
            .name = options[i].name,
            .has_arg = options[i].kind == CLI_FLAG ? no_argument : required_argument,
            .val = OPTION_CODE + (int)i,
        };
        add_letter(out, &options[i]);
    }
    out->long_options[count] = (struct option){.name = "help", .val = 'h'};
}

/* The index of the option that getopt's `code` means. */
static size_t option_index(const cli_option *options, int code)
{
    if (code >= OPTION_CODE) {
        return (size_t)(code - OPTION_CODE);
    }
    size_t index = 0;
    while (options[index].name != NULL && options[index].letter != code) {
        index++;
    }
    return index;
}

static bool check_complete(const cli_usage *usage, const cli_option *options, const bool *is_given,
                           size_t positional)
{
    for (size_t i = 0; options[i].name != NULL; i++) {
        if (options[i].is_required && !is_given[i]) {
            (void)fprintf(stderr, "kvarve: --%s is needed\nUsage: kvarve %s\n", options[i].name,
                          usage->synopsis);
            return false;
        }
    }
    if (positional < usage->positional_min || positional > usage->positional_max) {
        (void)fprintf(stderr, "kvarve: %s\nUsage: kvarve %s\n",
                      positional < usage->positional_min ? "an argument is missing"
                                                         : "too many arguments",
                      usage->synopsis);
        return false;
    }
    return true;
}

/* getopt has global state: one thread parses. */
static int next_option(int count, char **arguments, const getopt_tables *tables)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): as said above */
    return getopt_long(count, arguments, tables->letters, tables->long_options, NULL);
}

bool cli_parse(const cli_usage *usage, const cli_option *options, int argument_count,
               char **arguments, char ***out_positional, size_t *out_count, int *out_exit)
{
    getopt_tables tables = {0};
    bool is_given[OPTIONS_MAX] = {false};
    const size_t count = count_options(options);

    *out_exit = CLI_USAGE;
    if (count > OPTIONS_MAX) {
        return false;
    }
    fill_tables(options, count, &tables);
    optind = 1;
    for (;;) {
        const int code = next_option(argument_count, arguments, &tables);
        if (code == -1) {
            break;
        }
        if (code == 'h') {
            print_help(usage, options);
            *out_exit = CLI_OK;
            return false;
        }
        const size_t index = code == '?' ? count : option_index(options, code);
        if (index >= count) {
            (void)fprintf(stderr, "Usage: kvarve %s\n", usage->synopsis);
            return false;
        }
        is_given[index] = true;
        if (!set_option(&options[index], optarg)) {
            return false;
        }
    }
    const size_t positional = (size_t)(argument_count - optind);
    if (!check_complete(usage, options, is_given, positional)) {
        return false;
    }
    *out_positional = arguments + optind;
    *out_count = positional;
    *out_exit = CLI_OK;
    return true;
}
