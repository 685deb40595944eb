/*
 * letter.c - see letter_private.h.
 *
 * Invariants
 *   I1  Taken ranges do not overlap; `used` has them in order.
 *   I2  What stands in a range that an unanswered request names is not changed, but by bytes equal
 *       to those that stand there.
 *   I3  Memory is populated before it is written, so that lack of it is an answer.
 *
 * A prefix may have been cut, extended, or freed and another one made at its address since its
 * last use. Its steps are a chain: where step i is equal, everything before is, so the first step
 * that differs says from where on to copy.
 */
#include "client/letter_private.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "key/key.h"

#define LETTER_BYTES    (UINT64_C(1) << 30)
#define LETTER_LEAST    (UINT64_C(1) << 20)
#define PAGE            4096u
#define RANGE_ALIGN     64u /* multiples of a cache line, and so of WIRE_LETTER_ALIGN */
#define POPULATED_PIECE (UINT64_C(1) << 18)
#define ROOM_LEAST      4096u /* tokens of an image */

kvarve_status client_letter_open(client_letter *at, const kvarve_env *env, uint64_t bytes,
                                 kvarve_error *err)
{
    uint64_t size = kvarve_round_up(bytes == 0 ? LETTER_BYTES : bytes, PAGE);
    int rc = -ENOMEM;

    *at = (client_letter){.env = env, .mapping.fd = -1};
    if (size > WIRE_LETTER_MAX) {
        size = WIRE_LETTER_MAX;
    }
    while (rc < 0 && size >= LETTER_LEAST) {
        rc = env->memory->create(env->memory, MEMORY_SHARED, "kvarve-letter", size, &at->mapping);
        size /= 2;
    }
    return rc == 0 ? KVARVE_OK
                   : kvarve_fail_io(err, rc, "connect: memory to share with the daemon");
}

void client_letter_close(client_letter *at)
{
    if (at->mapping.base != NULL) {
        at->env->memory->destroy(at->env->memory, &at->mapping);
    }
    kvarve_release(at->used);
    *at = (client_letter){.mapping.fd = -1};
}

uint8_t *client_letter_bytes(const client_letter *at, wire_letter range)
{
    return (uint8_t *)at->mapping.base + range.offset;
}

/* --- room --- */

static bool grow_used(client_letter *at)
{
    const size_t room = at->used_room == 0 ? 64 : 2 * at->used_room;
    wire_letter *larger = kvarve_reallocate(at->used, room * sizeof *larger);

    if (larger == NULL) {
        return false;
    }
    at->used = larger;
    at->used_room = room;
    return true;
}

/* I3 */
static kvarve_status populate(client_letter *at, uint64_t end, kvarve_error *err)
{
    kvarve_memory *memory = at->env->memory;
    const uint64_t until = kvarve_min_u64(kvarve_round_up(end, POPULATED_PIECE), at->mapping.size);
    int rc;

    if (end <= at->populated) {
        return KVARVE_OK;
    }
    rc = memory->populate(memory, &at->mapping, at->populated, until - at->populated);
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "the letter to the daemon: %llu bytes of memory",
                              (unsigned long long)(until - at->populated));
    }
    at->populated = until;
    return KVARVE_OK;
}

/* The first gap of `size` bytes: its place in `used`, and where it begins. */
static bool find_gap(const client_letter *at, uint64_t size, size_t *out_index,
                     uint64_t *out_offset)
{
    uint64_t offset = 0;

    for (size_t i = 0; i <= at->used_count; i++) {
        const uint64_t end = i < at->used_count ? at->used[i].offset : at->mapping.size;

        if (size <= end - offset) {
            *out_index = i;
            *out_offset = offset;
            return true;
        }
        if (i < at->used_count) {
            offset = at->used[i].offset + kvarve_round_up(at->used[i].size, RANGE_ALIGN);
        }
    }
    return false;
}

static void forget(client_letter *at, client_letter_image *image)
{
    const wire_letter range = image->range;

    *image = (client_letter_image){0};
    client_letter_give(at, range);
}

/* The image that was not used for longest; NULL: all are in use, or `except`. */
static client_letter_image *oldest_image(client_letter *at, const client_letter_image *except)
{
    client_letter_image *oldest = NULL;

    for (size_t i = 0; i < LETTER_IMAGES; i++) {
        client_letter_image *image = &at->images[i];

        if (image->prefix != NULL && image->users == 0 && image != except &&
            (oldest == NULL || image->used < oldest->used)) {
            oldest = image;
        }
    }
    return oldest;
}

static kvarve_status take_for(client_letter *at, uint64_t size, const client_letter_image *except,
                              wire_letter *out, kvarve_error *err)
{
    const uint64_t rounded = kvarve_round_up(size, RANGE_ALIGN);
    client_letter_image *oldest;
    size_t index;
    uint64_t offset;
    kvarve_status status;

    if (size == 0) {
        *out = (wire_letter){0};
        return KVARVE_OK;
    }
    if (size > at->mapping.size || (at->used_count == at->used_room && !grow_used(at))) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the letter to the daemon: room for %llu bytes",
                           (unsigned long long)size);
    }
    while (!find_gap(at, rounded, &index, &offset)) {
        oldest = oldest_image(at, except);
        if (oldest == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY,
                               "the letter to the daemon has %zu bytes: no room for %llu more",
                               at->mapping.size, (unsigned long long)size);
        }
        forget(at, oldest);
    }
    status = populate(at, offset + rounded, err);
    if (status != KVARVE_OK) {
        return status;
    }
    memmove(&at->used[index + 1], &at->used[index], (at->used_count - index) * sizeof *at->used);
    at->used[index] = (wire_letter){.offset = offset, .size = size};
    at->used_count++;
    *out = at->used[index];
    return KVARVE_OK;
}

kvarve_status client_letter_take(client_letter *at, uint64_t size, wire_letter *out,
                                 kvarve_error *err)
{
    return take_for(at, size, NULL, out, err);
}

void client_letter_give(client_letter *at, wire_letter range)
{
    size_t index = 0;

    if (range.size == 0) {
        return;
    }
    while (index < at->used_count && at->used[index].offset != range.offset) {
        index++;
    }
    KVARVE_ASSERT(index < at->used_count);
    at->used_count--;
    memmove(&at->used[index], &at->used[index + 1], (at->used_count - index) * sizeof *at->used);
}

kvarve_status client_letter_put(client_letter *at, const void *bytes, uint64_t size,
                                wire_letter *out, kvarve_error *err)
{
    const kvarve_status status = client_letter_take(at, size, out, err);

    if (status == KVARVE_OK && size > 0) {
        memcpy(client_letter_bytes(at, *out), bytes, size);
    }
    return status;
}

/* --- images --- */

static uint64_t step_count(uint64_t tokens)
{
    return tokens / PREFIX_STEP_TOKENS + 1;
}

static uint64_t image_size(uint64_t token_room)
{
    return token_room * WIRE_TOKEN_SIZE + step_count(token_room) * WIRE_STEP_SIZE;
}

static uint8_t *steps_of(const client_letter *at, const client_letter_image *image)
{
    return client_letter_bytes(at, image->range) + image->token_room * WIRE_TOKEN_SIZE;
}

static bool is_equal_step(const uint8_t *kept, const prefix_image *now, uint64_t step)
{
    return memcmp(kept + step * WIRE_STEP_SIZE, (const uint8_t *)now->steps + step * WIRE_STEP_SIZE,
                  WIRE_STEP_SIZE) == 0;
}

/* How many of the tokens that stand there are those of `now`, as far as steps tell: a step's
 * chaining value is that of a few tokens before, so the piece before it is copied again. */
static uint64_t common_tokens(const client_letter *at, const client_letter_image *image,
                              const prefix_image *now)
{
    const uint8_t *kept = steps_of(at, image);
    uint64_t low = 0; /* equal, as far as it counts: before it there is nothing */
    uint64_t high = kvarve_min_u64(image->length, now->length) / PREFIX_STEP_TOKENS;

    if (high > 0 && is_equal_step(kept, now, high)) {
        return (high - 1) * PREFIX_STEP_TOKENS;
    }
    while (high - low > 1) { /* step `high` differs */
        const uint64_t middle = low + (high - low) / 2;

        if (is_equal_step(kept, now, middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low == 0 ? 0 : (low - 1) * PREFIX_STEP_TOKENS;
}

static void copy_image(const client_letter *at, client_letter_image *image, const prefix_image *now)
{
    const uint64_t common = common_tokens(at, image, now);
    const uint64_t step = common / PREFIX_STEP_TOKENS;
    uint8_t *tokens = client_letter_bytes(at, image->range);

    if (now->length > common) {
        memcpy(tokens + common * WIRE_TOKEN_SIZE, now->tokens + common,
               (now->length - common) * WIRE_TOKEN_SIZE);
    }
    memcpy(steps_of(at, image) + step * WIRE_STEP_SIZE,
           (const uint8_t *)now->steps + step * WIRE_STEP_SIZE,
           (step_count(now->length) - step) * WIRE_STEP_SIZE);
    image->length = now->length;
}

static client_letter_image *find_image(client_letter *at, const kvarve_prefix *prefix)
{
    for (size_t i = 0; i < LETTER_IMAGES; i++) {
        if (at->images[i].prefix == prefix) {
            return &at->images[i];
        }
    }
    return NULL;
}

/* A place for one more image; NULL: all are in use. */
static client_letter_image *free_image(client_letter *at)
{
    client_letter_image *image = find_image(at, NULL);

    if (image == NULL) {
        image = oldest_image(at, NULL);
        if (image != NULL) {
            forget(at, image);
        }
    }
    return image;
}

/* Room for `length` tokens and for what is appended later; what stood there is gone. */
static kvarve_status make_image(client_letter *at, client_letter_image *image, uint64_t length,
                                kvarve_error *err)
{
    const uint64_t wanted =
        kvarve_round_up(kvarve_max_u64(length + length / 2, ROOM_LEAST), PREFIX_STEP_TOKENS);
    const uint64_t room = kvarve_min_u64(wanted, KVARVE_PREFIX_TOKENS_MAX);
    wire_letter range;
    const kvarve_status status = take_for(at, image_size(room), image, &range, err);

    if (status == KVARVE_OK) {
        *image = (client_letter_image){.range = range, .token_room = room};
    }
    return status;
}

kvarve_status client_letter_prefix(client_letter *at, const kvarve_prefix *prefix, wire_prefix *out,
                                   client_letter_image **out_image, kvarve_error *err)
{
    const prefix_image now = prefix_image_of(prefix);
    client_letter_image *image = find_image(at, prefix);
    kvarve_status status = KVARVE_OK;

    if (image != NULL && image->token_room < now.length && image->users == 0) {
        forget(at, image);
        image = NULL;
    }
    if (image == NULL || image->token_room < now.length) {
        image = free_image(at);
        status = image == NULL ? kvarve_fail(err, KVARVE_NO_MEMORY,
                                             "the letter to the daemon: %u prefixes are in use",
                                             LETTER_IMAGES)
                               : make_image(at, image, now.length, err);
    }
    if (image == NULL || status != KVARVE_OK) {
        return status;
    }
    copy_image(at, image, &now);
    image->prefix = prefix;
    image->users++;
    image->used = ++at->clock;
    *out =
        (wire_prefix){.tokens = {.offset = now.length == 0 ? 0 : image->range.offset,
                                 .size = now.length * WIRE_TOKEN_SIZE},
                      .steps = {.offset = image->range.offset + image->token_room * WIRE_TOKEN_SIZE,
                                .size = step_count(now.length) * WIRE_STEP_SIZE}};
    *out_image = image;
    return KVARVE_OK;
}

void client_letter_done(client_letter_image *image)
{
    if (image != NULL) {
        KVARVE_ASSERT(image->users > 0);
        image->users--;
    }
}
