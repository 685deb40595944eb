/*
 * script.c - prompts from a seed.
 *
 * Most lengths are no multiples of anything, so that boundaries lie inside pages and blocks. Pure.
 */
#include "standin/script.h"

#include <stdbool.h>

#include "standin/digest.h"
#include "standin/model.h"

#define SYSTEMS     2u  /* different instructions */
#define PAGE_TOKENS 64u /* a multiple of most spans */

static uint64_t chance_of(uint64_t seed, uint32_t index, uint32_t turn, uint32_t what)
{
    return digest_two(digest_two(seed, (uint64_t)index << 32 | turn), what);
}

static void append(conversation *to, uint64_t seed, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to->tokens[to->length++] = (uint32_t)(digest_two(seed, i) % STANDIN_VOCABULARY);
    }
}

static void begin(conversation *out, uint64_t seed, uint32_t system)
{
    const uint64_t of_system = digest_two(seed, UINT64_C(0x5159) + system);

    out->length = 0;
    append(out, of_system, 70 + of_system % 60);
    out->instruction = out->length;
    out->user = out->length;
    out->prompt = out->length;
}

/* Something that is asked; at times it ends where a page ends. */
static void ask(conversation *to, uint64_t chance)
{
    const bool is_even = chance / 1024 % 3 == 0;
    const uint64_t count = 10 + chance % 50;

    to->user = to->length;
    append(to, digest_two(chance, 1),
           is_even ? count + PAGE_TOKENS - (to->length + count) % PAGE_TOKENS : count);
    to->prompt = to->length;
}

const char *script_ask(uint64_t seed, conversation *conversations, uint32_t count, uint32_t index,
                       uint32_t turn)
{
    const uint64_t chance = chance_of(seed, index, turn, 0);
    conversation *own = &conversations[index];
    const conversation *other = &conversations[chance / 16 % count];

    if (turn == 0 || own->length > STANDIN_TOKENS_MAX - 200) {
        begin(own, seed, index % SYSTEMS);
        if (index / SYSTEMS % 2 == 0) { /* else instructions and prompt end at one token */
            ask(own, chance);
        }
        return "begins";
    }
    switch (chance % 12) {
    case 0: /* the last question is another one */
        own->length = own->user;
        ask(own, chance);
        return "is edited";
    case 1: /* the last answer is replaced, as templates do that drop what was thought */
        own->length = own->prompt;
        append(own, digest_two(chance, 2), 1 + chance % 9);
        ask(own, chance);
        return "is rewritten";
    case 2: /* the same once more */
    case 5:
        own->length = own->prompt;
        return "is regenerated";
    case 3:
        if (other != own && other->length > 0 && other->length < STANDIN_TOKENS_MAX - 200) {
            *own = *other;
            ask(own, chance);
            return "branches off";
        }
        break;
    case 4: /* the answer goes on: the prompt ends where its state was put */
        own->length--;
        own->prompt = own->length;
        return "is continued";
    default:
        break;
    }
    ask(own, chance);
    return "goes on";
}

uint32_t script_answer_length(uint64_t seed, uint32_t index, uint32_t turn)
{
    return 4 + (uint32_t)(chance_of(seed, index, turn, 9) % (STANDIN_ANSWER_MAX - 4));
}
