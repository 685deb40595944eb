/*
 * script.h - what people ask the stand-in engine: conversations that share instructions, go on, are
 * edited, get another answer, and grow from each other's history.
 *
 * Each turn makes the next prompt of one conversation from the seed and from what was answered
 * before. Pure: the same seed and answers give the same prompts.
 */
#ifndef KVARVE_STANDIN_SCRIPT_H
#define KVARVE_STANDIN_SCRIPT_H

#include <stdint.h>

#define STANDIN_TOKENS_MAX 1400u /* of a prompt with its answer */
#define STANDIN_ANSWER_MAX 20u

typedef struct conversation {
    uint32_t tokens[STANDIN_TOKENS_MAX];
    uint64_t length;
    uint64_t instruction; /* tokens of the instructions at the start */
    uint64_t user;        /* where the last thing that was asked begins */
    uint64_t prompt;      /* where the last answer begins */
} conversation;

/* Make the prompt of this turn out of conversations[index]; returns what was done. */
const char *script_ask(uint64_t seed, conversation *conversations, uint32_t count, uint32_t index,
                       uint32_t turn);

/* How many tokens its answer has, 1 .. STANDIN_ANSWER_MAX. */
uint32_t script_answer_length(uint64_t seed, uint32_t index, uint32_t turn);

#endif
