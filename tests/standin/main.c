/*
 * main.c - the stand-in engine as a program: an engine to start by hand against a store.
 *
 * Prints what each turn restored and computed, and digests of the outputs, which are the same for
 * the same seed whatever the store did. Exit codes: README.md.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/engine.h"
#include "standin/memory.h"

enum {
    EXIT_RIGHT = 0,   /* and, with --check, equal to a run without a store */
    EXIT_WRONG = 1,   /* the output is another one, or the blocks are not as they should be */
    EXIT_USAGE = 2,   /* nothing was done */
    EXIT_NO_RUN = 3,  /* the store can not be opened, or the engine itself could not go on */
    EXIT_NO_HITS = 4, /* --expect-hits: there were none */
    EXIT_FAULT = 5,   /* the store gave an answer that is neither a hit nor a miss nor a refusal */
};

typedef struct program {
    standin_options options;
    bool checks;
    bool expects_hits;
    bool is_quiet;
    /* What the run without a store gave. */
    uint64_t *outputs;
    uint64_t output_count;
    uint64_t wrong;
    bool is_reference;
} program;

typedef struct flag {
    const char *name;
    const char *argument; /* NULL: none */
    const char *text;
} flag;

static const flag flags[] = {
    {"store", "PLACE", "a store's folder, or a daemon's unix:SOCKET; none: compute everything"},
    {"ranks", "N", "1 to 8; default 2"},
    {"layout", "NAME", "one of those below; default hybrid"},
    {"seed", "N", "of everything: what is asked, blocks, outputs; default 1"},
    {"turns", "N", "of each conversation; default 4"},
    {"conversations", "N", "default 3"},
    {"drafter", "N", "which drafter; 0: none, where the layout can do without; default 1"},
    {"transfer", "HOW", "copy (regions), place (in place) or write (pieces); default copy"},
    {"arena", "MIB", "RAM of an embedded store; default 16"},
    {"abort-every", "N", "give up each Nth put while it is copied"},
    {"wait", NULL, "end each turn when its puts have ended: hits do not depend on time"},
    {"check", NULL, "compute everything, too, and compare"},
    {"expect-hits", NULL, "fail when nothing was restored"},
    {"quiet", NULL, "the last line only"},
    {"break", "HOW[:GROUP[:N]]", "make what was restored wrong, to see that the output changes"},
    {"help", NULL, "this text"},
};
enum {
    FLAG_STORE,
    FLAG_RANKS,
    FLAG_LAYOUT,
    FLAG_SEED,
    FLAG_TURNS,
    FLAG_CONVERSATIONS,
    FLAG_DRAFTER,
    FLAG_TRANSFER,
    FLAG_ARENA,
    FLAG_ABORT_EVERY,
    FLAG_WAIT,
    FLAG_CHECK,
    FLAG_EXPECT_HITS,
    FLAG_QUIET,
    FLAG_BREAK,
    FLAG_HELP,
    FLAG_COUNT
};

static const char *const break_words[] = {
#define BREAK_WORD(name, word, text) word,
    STANDIN_BREAK_TABLE(BREAK_WORD)
#undef BREAK_WORD
};
static const char *const break_texts[] = {
#define BREAK_TEXT(name, word, text) text,
    STANDIN_BREAK_TABLE(BREAK_TEXT)
#undef BREAK_TEXT
};

static void print_help(FILE *to)
{
    char left[48];

    (void)fprintf(to, "usage: kvarve-standin --store PLACE [flags]\n\n"
                      "A scheduler and ranks with paged memory, and digests in place of a model. "
                      "Equal seeds\ngive equal outputs, whatever is restored and whatever is "
                      "computed.\n\n");
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        (void)snprintf(left, sizeof left, "--%s %s", flags[i].name,
                       flags[i].argument == NULL ? "" : flags[i].argument);
        (void)fprintf(to, "  %-20s %s\n", left, flags[i].text);
    }
    (void)fprintf(to, "\nlayouts:\n");
    for (size_t i = 0; i < standin_layout_count; i++) {
        (void)fprintf(to, "  %-20s %s\n", standin_layouts[i].name, standin_layouts[i].about);
    }
    (void)fprintf(to, "\nwhat --break makes:\n");
    for (size_t i = 1; i < STANDIN_BREAK_COUNT; i++) {
        (void)fprintf(to, "  %-20s %s\n", break_words[i], break_texts[i]);
    }
    (void)fprintf(to, "\nexit: 0 right, 1 wrong output, 2 usage, 3 could not run, 4 no hits, "
                      "5 the store failed in a call\n");
}

/* --- the command line --- */

static bool read_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value > max) {
        return false;
    }
    *out = value;
    return true;
}

static bool read_small(const char *text, uint64_t max, uint32_t *out)
{
    uint64_t value;
    const bool is_good = read_number(text, max, &value);

    *out = is_good ? (uint32_t)value : *out;
    return is_good;
}

static bool read_transfer(const char *text, standin_transfer *out)
{
    static const char *const words[] = {"copy", "place", "write"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = (standin_transfer)i;
            return true;
        }
    }
    return false;
}

#define PART_MAX 24u

/* The part of *text before a colon or the end; *text moves behind the colon. */
static bool take_part(const char **text, char out[PART_MAX])
{
    const size_t length = strcspn(*text, ":");

    if (length >= PART_MAX) {
        return false;
    }
    memcpy(out, *text, length);
    out[length] = '\0';
    *text += length + ((*text)[length] == ':');
    return true;
}

/* HOW, HOW:GROUP or HOW:GROUP:N. */
static bool read_break(const char *text, standin_options *out)
{
    char word[PART_MAX];
    char part[PART_MAX];

    if (!take_part(&text, word) ||
        (*text != '\0' && (!take_part(&text, part) ||
                           !read_small(part, STANDIN_GROUPS_MAX - 1, &out->broken_group))) ||
        (*text != '\0' && !read_number(text, UINT64_MAX, &out->broken_where))) {
        return false;
    }
    for (size_t i = 0; i < STANDIN_BREAK_COUNT; i++) {
        if (strcmp(break_words[i], word) == 0) {
            out->broken = (standin_break)i;
            return true;
        }
    }
    return false;
}

static bool take_switch(program *out, int which)
{
    out->options.waits = out->options.waits || which == FLAG_WAIT;
    out->checks = out->checks || which == FLAG_CHECK;
    out->expects_hits = out->expects_hits || which == FLAG_EXPECT_HITS;
    out->is_quiet = out->is_quiet || which == FLAG_QUIET;
    return which == FLAG_WAIT || which == FLAG_CHECK || which == FLAG_EXPECT_HITS ||
           which == FLAG_QUIET;
}

static bool take_flag(program *out, int which, const char *text)
{
    standin_options *options = &out->options;
    uint64_t value;

    switch (which) {
    case FLAG_STORE:
        options->store = strcmp(text, "none") == 0 ? NULL : text;
        return true;
    case FLAG_RANKS:
        return read_small(text, STANDIN_RANKS_MAX, &options->ranks);
    case FLAG_LAYOUT:
        options->layout = text;
        return true;
    case FLAG_SEED:
        return read_number(text, UINT64_MAX, &options->seed);
    case FLAG_TURNS:
        return read_small(text, 1000000, &options->turns);
    case FLAG_CONVERSATIONS:
        return read_small(text, 1000, &options->conversations) && options->conversations > 0;
    case FLAG_DRAFTER:
        return read_small(text, UINT32_MAX, &options->drafter);
    case FLAG_TRANSFER:
        return read_transfer(text, &options->transfer);
    case FLAG_ARENA:
        if (!read_number(text, 1u << 20, &value)) {
            return false;
        }
        options->arena_bytes = value << 20;
        return true;
    case FLAG_ABORT_EVERY:
        return read_small(text, 1000000, &options->abort_every);
    case FLAG_BREAK:
        return read_break(text, options);
    default:
        return take_switch(out, which);
    }
}

/* EXIT_RIGHT, or the exit code. */
static int read_line(int count, char **arguments, program *out)
{
    struct option options[FLAG_COUNT + 1] = {0};
    bool has_store = false;
    int which;

    for (int i = 0; i < FLAG_COUNT; i++) {
        options[i].name = flags[i].name;
        options[i].has_arg = flags[i].argument == NULL ? no_argument : required_argument;
        options[i].val = i;
    }
    for (;;) {
        which = getopt_long(count, arguments, "", options, NULL); /* NOLINT(concurrency-mt-unsafe):
                                                                     nothing else runs yet */
        if (which < 0) {
            break;
        }
        if (which == FLAG_HELP) {
            print_help(stdout);
            return -1;
        }
        has_store = has_store || which == FLAG_STORE;
        if (which == '?' || !take_flag(out, which, optarg)) {
            if (which != '?') {
                (void)fprintf(stderr, "kvarve-standin: --%s: %s\n", flags[which].name, optarg);
            }
            return EXIT_USAGE;
        }
    }
    if (optind < count || !has_store) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    return EXIT_RIGHT;
}

/* --- running --- */

static void print_turn(const standin_turn *turn)
{
    static const char *const kinds[] = {"instruction", "prompt", "response"};
    const char *kind = turn->restored == 0 ? "nothing" : kinds[turn->kind % 3];

    (void)printf("turn %u, conversation %u %s: %" PRIu64 " tokens, %" PRIu64
                 " restored (%s), %" PRIu64 " computed, answer of %u: %016" PRIx64 "\n",
                 turn->turn, turn->conversation, turn->what, turn->tokens, turn->restored, kind,
                 turn->computed, turn->answer, turn->output);
}

/* Keep the reference's outputs, or compare with them. */
static void take_turn(void *context, const standin_turn *turn)
{
    program *of = context;
    const uint64_t at = (uint64_t)turn->turn * of->options.conversations + turn->conversation;

    if (of->is_reference) {
        of->outputs[at] = turn->output;
        of->output_count = at + 1;
        return;
    }
    if (!of->is_quiet) {
        print_turn(turn);
        (void)fflush(stdout);
    }
    if (of->checks && (at >= of->output_count || of->outputs[at] != turn->output)) {
        of->wrong++;
        (void)fprintf(stderr, "kvarve-standin: turn %u of conversation %u: the output is wrong\n",
                      turn->turn, turn->conversation);
    }
}

static void print_counts(const standin_counts *counts)
{
    (void)printf("restored %" PRIu64 " tokens, computed %" PRIu64 "; %" PRIu64 " hits (%" PRIu64
                 " without the drafter's half), %" PRIu64 " misses, %" PRIu64 " loads failed\n",
                 counts->tokens_restored, counts->tokens_computed, counts->hits,
                 counts->hits_without_draft, counts->misses, counts->loads_failed);
    (void)printf("put %" PRIu64 ": %" PRIu64 " durable, %" PRIu64 " present, %" PRIu64
                 " given up, %" PRIu64 " refused; %" PRIu64 " copies asked for again\n",
                 counts->puts, counts->puts_durable, counts->puts_present, counts->puts_given_up,
                 counts->puts_refused, counts->copies_asked);
    (void)printf("guesses: %" PRIu64 " kept, %" PRIu64 " lost\n", counts->guesses_kept,
                 counts->guesses_lost);
}

static int exit_code(const program *of, const standin_counts *counts, bool is_whole)
{
    if (of->wrong > 0 || !is_whole) {
        return EXIT_WRONG;
    }
    if (counts->faults > 0) {
        return EXIT_FAULT;
    }
    return of->expects_hits && counts->hits == 0 ? EXIT_NO_HITS : EXIT_RIGHT;
}

static int run(program *of)
{
    standin_counts counts;
    char text[KVARVE_ERROR_TEXT_MAX];
    standin_engine *engine = engine_open(&of->options, text, sizeof text);
    uint64_t output;
    bool has_run;
    bool is_whole;

    if (engine == NULL) {
        (void)fprintf(stderr, "kvarve-standin: %s\n", text);
        return EXIT_NO_RUN;
    }
    has_run = engine_run(engine, take_turn, of);
    engine_counts(engine, &counts);
    output = engine_output(engine);
    if (counts.faults > 0) {
        (void)fprintf(stderr, "kvarve-standin: %s\n", engine_fault(engine));
    }
    is_whole = engine_close(engine);
    if (!has_run) {
        (void)fprintf(stderr, "kvarve-standin: a rank is gone, or there are too few blocks\n");
        return EXIT_NO_RUN;
    }
    if (!is_whole) {
        (void)fprintf(stderr,
                      "kvarve-standin: memory between blocks was written to, or a block is still "
                      "in use\n");
    }
    if (of->options.broken != STANDIN_BREAK_NONE && counts.broken == 0) {
        (void)fprintf(stderr, "kvarve-standin: nothing was restored that could be made wrong\n");
        return EXIT_NO_HITS;
    }
    if (!of->is_reference) {
        if (!of->is_quiet) {
            print_counts(&counts);
        }
        (void)printf("output %016" PRIx64 "\n", output);
    }
    return exit_code(of, &counts, is_whole);
}

/* The same without a store. */
static int run_reference(program *of)
{
    const standin_options given = of->options;
    int code;

    of->outputs = standin_allocate((size_t)given.turns * given.conversations + 1, sizeof(uint64_t));
    if (of->outputs == NULL) {
        return EXIT_NO_RUN;
    }
    of->is_reference = true;
    of->options.store = NULL;
    of->options.broken = STANDIN_BREAK_NONE;
    of->expects_hits = false;
    code = run(of);
    of->is_reference = false;
    of->options = given;
    return code;
}

int main(int count, char **arguments)
{
    program of = {.options = {.layout = "hybrid",
                              .ranks = 2,
                              .drafter = 1,
                              .turns = 4,
                              .conversations = 3,
                              .seed = 1,
                              .arena_bytes = UINT64_C(16) << 20}};
    int code = read_line(count, arguments, &of);
    const bool expects_hits = of.expects_hits;

    if (code != EXIT_RIGHT) {
        return code < 0 ? EXIT_RIGHT : code;
    }
    if (of.checks) {
        code = run_reference(&of);
    }
    of.expects_hits = expects_hits;
    if (code == EXIT_RIGHT) {
        code = run(&of);
    }
    standin_release(of.outputs);
    return code;
}
