/*
 * letter.c - what a client has laid into its letter.
 *
 * Invariants
 *   I1  The memory is written by somebody else at any time. What decides anything is copied first,
 *       each byte read once; what is only hashed (tokens, steps) is borrowed.
 *   I2  No range is used that is not inside of what HELLO said; nothing is allocated by a count
 *       that was not compared with a limit.
 *
 * Threads: the daemon's one.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "key/key.h"
#include "session/session_private.h"

#define DIGESTS_MAX (UINT32_C(1) << 22) /* as many as a put can have pages */
#define SIZES_MAX   ((uint64_t)KVARVE_RANKS_MAX * KVARVE_GROUPS_MAX)

/* The one step of no tokens; what stands in it is in no digest that can be asked for. */
static const uint8_t no_step[WIRE_STEP_SIZE] __attribute__((aligned(8)));

kvarve_status letter_find(const session *at, wire_letter range, const uint8_t **out,
                          kvarve_error *err)
{
    if (range.offset > at->letter_used || range.size > at->letter_used - range.offset) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "%" PRIu64 " bytes at %" PRIu64 " of a letter of %" PRIu64 " bytes",
                           range.size, range.offset, at->letter_used);
    }
    *out = at->letter + range.offset;
    return KVARVE_OK;
}

kvarve_status letter_text(const session *at, wire_letter range, char **out, kvarve_error *err)
{
    const uint8_t *from = NULL;
    kvarve_status status = letter_find(at, range, &from, err);
    char *text;

    *out = NULL;
    if (status != KVARVE_OK || from == NULL || range.size == 0) {
        return status;
    }
    text = kvarve_allocate((size_t)range.size + 1);
    if (text == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a text of %" PRIu64 " bytes", range.size);
    }
    memcpy(text, from, (size_t)range.size); /* I1 */
    if (memchr(text, 0, (size_t)range.size) != NULL) {
        kvarve_release(text);
        return kvarve_fail(err, KVARVE_INVALID, "a text of %" PRIu64 " bytes with a NUL in it",
                           range.size);
    }
    *out = text;
    return KVARVE_OK;
}

kvarve_status letter_prefix(const session *at, const wire_prefix *image, kvarve_prefix **out,
                            kvarve_error *err)
{
    const uint64_t length = image->tokens.size / WIRE_TOKEN_SIZE;
    const uint64_t steps = image->steps.size / WIRE_STEP_SIZE;
    const bool is_empty = length == 0 && steps == 0;
    const uint8_t *tokens = NULL;
    const uint8_t *chain = NULL;
    prefix_image borrowed;
    kvarve_status status = letter_find(at, image->tokens, &tokens, err);

    if (status == KVARVE_OK) {
        status = letter_find(at, image->steps, &chain, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (!is_empty && steps != length / WIRE_STEP_TOKENS + 1) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "a prefix of %" PRIu64 " tokens with %" PRIu64 " steps, not %" PRIu64,
                           length, steps, length / WIRE_STEP_TOKENS + 1);
    }
    borrowed = (prefix_image){.tokens = is_empty ? NULL : (const uint32_t *)(const void *)tokens,
                              .steps = is_empty ? no_step : chain,
                              .length = length};
    return prefix_borrow(&borrowed, out, err);
}

/* A record that lies in the letter, and its struct here. */
typedef struct record_array {
    wire_record record;
    size_t wire_size;
    size_t host_size;
    uint64_t most;
    void (*take)(void *to, const void *record); /* one, from the wire's struct */
} record_array;

static kvarve_status take_records(const session *at, wire_letter range, const record_array *array,
                                  void **out, size_t *out_count, kvarve_error *err)
{
    union {
        wire_page_digest digest;
        wire_number number;
        wire_point point;
    } one;
    const uint64_t count = range.size / array->wire_size;
    const uint8_t *from = NULL;
    uint8_t *made;
    kvarve_status status = letter_find(at, range, &from, err);

    *out = NULL;
    *out_count = 0;
    if (status != KVARVE_OK || count == 0) {
        return status;
    }
    if (count > array->most) {
        return kvarve_fail(err, KVARVE_INVALID, "%" PRIu64 " records, at most %" PRIu64, count,
                           array->most);
    }
    made = kvarve_allocate_array((size_t)count, array->host_size);
    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "%" PRIu64 " records", count);
    }
    for (uint64_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = wire_record_decode(array->record, from + i * array->wire_size, &one, err); /* I1 */
        if (status == KVARVE_OK) {
            array->take(made + i * array->host_size, &one);
        }
    }
    if (status != KVARVE_OK) {
        kvarve_release(made);
        return status;
    }
    *out = made;
    *out_count = (size_t)count;
    return KVARVE_OK;
}

static void take_digest(void *to, const void *record)
{
    const wire_page_digest *from = record;
    kvarve_page_digest *digest = to;

    *digest =
        (kvarve_page_digest){.rank = from->rank, .group = from->group, .position = from->position};
    memcpy(digest->digest, from->digest, sizeof digest->digest);
}

kvarve_status letter_digests(const session *at, wire_letter range, kvarve_page_digest **out,
                             size_t *out_count, kvarve_error *err)
{
    static const record_array digests = {WIRE_RECORD_PAGE_DIGEST, WIRE_RECORD_SIZE_PAGE_DIGEST,
                                         sizeof(kvarve_page_digest), DIGESTS_MAX, take_digest};
    void *made = NULL;
    const kvarve_status status = take_records(at, range, &digests, &made, out_count, err);

    if (status == KVARVE_OK) {
        *out = made;
    }
    return status;
}

static void take_number(void *to, const void *record)
{
    *(uint64_t *)to = ((const wire_number *)record)->value;
}

kvarve_status letter_numbers(const session *at, wire_letter range, size_t wanted, uint64_t **out,
                             kvarve_error *err)
{
    static const record_array numbers = {WIRE_RECORD_NUMBER, WIRE_RECORD_SIZE_NUMBER,
                                         sizeof(uint64_t), SIZES_MAX, take_number};
    void *made = NULL;
    size_t count = 0;
    kvarve_status status;

    if (range.size > 0 && range.size != wanted * WIRE_RECORD_SIZE_NUMBER) {
        return kvarve_fail(err, KVARVE_INVALID, "%" PRIu64 " sizes, %zu are needed",
                           range.size / WIRE_RECORD_SIZE_NUMBER, wanted);
    }
    status = take_records(at, range, &numbers, &made, &count, err);
    if (status == KVARVE_OK) {
        *out = made;
    }
    return status;
}

static void take_point(void *to, const void *record)
{
    const wire_point *from = record;
    kvarve_prefix_point *point = to;

    point->tokens = from->tokens;
    memcpy(point->digest, from->digest, sizeof point->digest);
}

kvarve_status letter_points(const session *at, wire_letter range, kvarve_prefix_point **out,
                            size_t *out_count, kvarve_error *err)
{
    static const record_array points = {WIRE_RECORD_POINT, WIRE_RECORD_SIZE_POINT,
                                        sizeof(kvarve_prefix_point), WIRE_POINTS_MAX, take_point};
    void *made = NULL;
    const kvarve_status status = take_records(at, range, &points, &made, out_count, err);

    if (status == KVARVE_OK) {
        *out = made;
    }
    return status;
}
