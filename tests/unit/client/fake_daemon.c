/*
 * fake_daemon.c - see fake_daemon.h.
 */
#include "fake_daemon.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "format/arena_file.h"
#include "hash/hash.h"

#define SPACE_ID    7u
#define PUT_ID      8u
#define LEASE_ID    9u
#define PIN_ID      10u
#define PLAN_PART   2u /* entries of one answer: so that it takes two */
#define DOCUMENT    "{\"model\":\"none\"}"
#define ONE_SLOT    ((uint64_t)ARENA_UNIT)
#define FIRST_SLOT  ((uint64_t)ARENA_HEAD_SIZE)
#define BITS_A_BYTE 8u

/* --- what it has --- */

static uint32_t page_size(uint64_t index)
{
    return index < 2 ? FAKE_PAGE_BYTES : FAKE_STATE_BYTES;
}

static uint64_t page_offset(uint64_t index)
{
    return FIRST_SLOT + index * ONE_SLOT;
}

static wire_plan_entry plan_entry(const fake_daemon *fake, uint64_t index, bool is_wrong)
{
    wire_plan_entry entry = {.group = index < 2 ? 0 : 1,
                             .action = fake->is_acked ? KVARVE_PAGE_HAVE : KVARVE_PAGE_COPY,
                             .position = index < 2 ? index : 0,
                             .first_token = index < 2 ? index * FAKE_SPAN : 0,
                             .tokens = index < 2 ? FAKE_SPAN : 0,
                             .size = page_size(index),
                             .offset = fake->is_acked ? 0 : page_offset(index)};

    if (is_wrong && fake->plan.fault == FAULT_OFFSET) {
        entry.offset = fake->plan.value;
    }
    if (is_wrong && fake->plan.fault == FAULT_SIZE) {
        entry.size = (uint32_t)fake->plan.value;
    }
    if (is_wrong && fake->plan.fault == FAULT_GROUP) {
        entry.group = (uint32_t)fake->plan.value;
    }
    return entry;
}

static wire_page_entry page_entry(const fake_daemon *fake, uint64_t index, bool is_wrong)
{
    const page_digest digest = page_digest_of(fake->arena + page_offset(index), page_size(index));
    wire_page_entry entry = {.group = index < 2 ? 0 : 1,
                             .tokens = index < 2 ? FAKE_SPAN : 0,
                             .position = index < 2 ? index : 0,
                             .first_token = index < 2 ? index * FAKE_SPAN : 0,
                             .offset = page_offset(index),
                             .size = page_size(index)};

    memcpy(entry.digest, digest.bytes, sizeof entry.digest);
    if (is_wrong && fake->plan.fault == FAULT_OFFSET) {
        entry.offset = fake->plan.value;
    }
    if (is_wrong && fake->plan.fault == FAULT_SIZE) {
        entry.size = (uint32_t)fake->plan.value;
    }
    if (is_wrong && fake->plan.fault == FAULT_GROUP) {
        entry.group = (uint32_t)fake->plan.value;
    }
    return entry;
}

static wire_put_status put_status(const fake_daemon *fake)
{
    wire_put_status status = {.state = fake->is_acked ? KVARVE_PUT_DURABLE : KVARVE_PUT_STAGED,
                              .has_id = fake->is_acked};

    memset(status.id, fake->is_acked ? 1 : 0, sizeof status.id);
    return status;
}

static const wire_put_status aborted = {.state = KVARVE_PUT_ABORTED,
                                        .refusal = KVARVE_REFUSED_CALLER};

static wire_boundary boundary(void)
{
    return (wire_boundary){.tokens = FAKE_TOKENS,
                           .bytes = 2 * FAKE_PAGE_BYTES + FAKE_STATE_BYTES,
                           .state = KVARVE_PUT_DURABLE};
}

/* --- answers --- */

typedef union fake_items {
    wire_plan_entry plan[FAKE_PAGES];
    wire_page_entry pages[FAKE_PAGES];
    wire_boundary boundaries[1];
    wire_checkpoint checkpoints[1];
    wire_number numbers[80];
    wire_octet octets[64];
} fake_items;

static uint32_t fill_octets(fake_items *items, const void *bytes, uint64_t total, uint64_t from)
{
    const uint64_t left = from < total ? total - from : 0;
    const uint32_t count = (uint32_t)(left > PLAN_PART ? PLAN_PART : left);

    for (uint32_t i = 0; i < count; i++) {
        items->octets[i].value = ((const uint8_t *)bytes)[from + i];
    }
    return count;
}

static void answer_plan(const fake_daemon *fake, const wire_put_plan *from, bool is_wrong,
                        fake_items *items, wire_message *out)
{
    for (uint64_t i = from->from; i < FAKE_PAGES && out->count < PLAN_PART; i++) {
        items->plan[out->count++] = plan_entry(fake, i, is_wrong);
    }
    out->as.put_planned.total = FAKE_PAGES;
    if (is_wrong && fake->plan.fault == FAULT_TOTAL) {
        out->as.put_planned.total = fake->plan.value;
    }
}

static void answer_pages(const fake_daemon *fake, const wire_lease_pages *from, bool is_wrong,
                         fake_items *items, wire_message *out)
{
    for (uint64_t i = from->from; i < FAKE_PAGES && out->count < PLAN_PART; i++) {
        items->pages[out->count++] = page_entry(fake, i, is_wrong);
    }
    out->as.lease_pages_are.total = FAKE_PAGES;
    if (is_wrong && fake->plan.fault == FAULT_TOTAL) {
        out->as.lease_pages_are.total = fake->plan.value;
    }
}

static void answer_find(const wire_find *from, fake_items *items, wire_message *out)
{
    if (from->from == 0 && from->max > 0) {
        items->boundaries[out->count++] = boundary();
    }
    if (from->options.lease != KVARVE_LEASE_NONE) {
        out->as.found.lease = LEASE_ID;
        out->as.found.leased = boundary();
    }
}

static void answer_hello(const fake_daemon *fake, wire_message *out)
{
    const page_digest fingerprint = page_digest_of(fake->arena, ARENA_HEAD_SIZE);

    out->as.welcome = (wire_welcome){
        .version = 1, .io_timeout_ms = 1000, .epoch = 1, .arena_bytes = FAKE_ARENA_BYTES};
    memcpy(out->as.welcome.fingerprint, fingerprint.bytes, sizeof fingerprint.bytes);
}

/* What an honest one says; items are in `items`. */
static void answer_about_pages(fake_daemon *fake, const wire_message *request, bool is_wrong,
                               fake_items *items, wire_message *out)
{
    static const uint8_t bitmap[FAKE_TOKENS / BITS_A_BYTE + 1] = {0, 0, 0, 0, 1};

    switch ((uint32_t)request->type) {
    case WIRE_PUT_PLAN:
        answer_plan(fake, &request->as.put_plan, is_wrong, items, out);
        break;
    case WIRE_LEASE_PAGES:
        answer_pages(fake, &request->as.lease_pages, is_wrong, items, out);
        break;
    case WIRE_FIND:
        answer_find(&request->as.find, items, out);
        break;
    case WIRE_FIND_ALL:
        out->count = fill_octets(items, bitmap, sizeof bitmap, request->as.find_all.from);
        out->as.found_all.total = sizeof bitmap;
        if (is_wrong && fake->plan.fault == FAULT_TOTAL) {
            out->as.found_all.total = fake->plan.value % KVARVE_PREFIX_TOKENS_MAX;
        }
        break;
    case WIRE_DOCUMENT:
        out->count = fill_octets(items, DOCUMENT, strlen(DOCUMENT), request->as.document.from);
        out->as.document_is.total = strlen(DOCUMENT);
        if (is_wrong && fake->plan.fault == FAULT_TOTAL) {
            out->as.document_is.total = fake->plan.value;
        }
        break;
    case WIRE_LIST:
        out->count = request->as.list.from == 0;
        items->checkpoints[0] = (wire_checkpoint){.tokens = FAKE_TOKENS, .pages = FAKE_PAGES};
        out->as.listed.total = 1;
        break;
    case WIRE_LEASE_EXTENT:
        out->as.lease_extent_is.pages = request->as.lease_extent.group == 0 ? 2 : 1;
        out->as.lease_extent_is.bytes =
            request->as.lease_extent.group == 0 ? 2 * FAKE_PAGE_BYTES : FAKE_STATE_BYTES;
        break;
    default:
        out->as.page_begun.pin = PIN_ID;
        out->as.page_begun.page =
            page_entry(fake,
                       request->as.page_begin.group == 0 && request->as.page_begin.position < 2
                           ? request->as.page_begin.position
                           : 2,
                       is_wrong);
        break;
    }
}

static void answer(fake_daemon *fake, const wire_message *request, bool is_wrong, fake_items *items,
                   wire_message *out)
{
    switch ((uint32_t)request->type) {
    case WIRE_HELLO:
        answer_hello(fake, out);
        break;
    case WIRE_NAMESPACE_OPEN:
        out->as.namespace_opened.space = SPACE_ID;
        memcpy(out->as.namespace_opened.text, "a namespace", sizeof "a namespace");
        break;
    case WIRE_PUT_BEGIN:
        fake->is_acked = false;
        fake->is_aborted = false;
        out->as.put_begun = (wire_put_begun){.put = PUT_ID, .status = put_status(fake)};
        break;
    case WIRE_PUT_ACK:
        fake->is_acked = true;
        out->as.put_state.status = put_status(fake);
        break;
    case WIRE_PUT_FAIL:
    case WIRE_PUT_ABORT:
        fake->is_aborted = true;
        out->as.put_state.status = aborted;
        break;
    case WIRE_PUT_WAIT:
        out->as.put_state.status = put_status(fake);
        break;
    case WIRE_PUT_FIRST_TOKENS:
        out->count = 2;
        memset(items->numbers, 0, 2 * sizeof items->numbers[0]);
        break;
    case WIRE_LEASE_LOAD:
    case WIRE_LEASE_WAIT:
        out->as.lease_state.state = LEASE_LOADED;
        break;
    case WIRE_STATISTICS:
        out->count = 80;
        memset(items->numbers, 0, sizeof items->numbers);
        break;
    case WIRE_VERIFY:
        out->as.verified.is_over = request->as.verify.is_begin == 0;
        break;
    case WIRE_TRIM:
        out->as.trimmed.is_over = request->as.trim.is_begin == 0;
        break;
    case WIRE_STATUS:
        out->as.status_is.pid = 1;
        out->as.status_is.version[0] = '0';
        break;
    case WIRE_PAGE_END:
        fake->ended_pages++;
        fake->wrong_pages +=
            request->as.page_end.was_verified != 0 && request->as.page_end.is_right == 0;
        break;
    default:
        if (out->type != WIRE_DONE) {
            answer_about_pages(fake, request, is_wrong, items, out);
        }
        break;
    }
}

/* --- what is wrong about one --- */

static void flip_bits(fake_message *message, uint64_t seed)
{
    uint64_t random = seed;
    const uint64_t count = 1 + world_next_random(&random) % 4;

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bit = world_next_random(&random) % (message->size * BITS_A_BYTE);

        message->bytes[bit / BITS_A_BYTE] ^= (uint8_t)(1u << bit % BITS_A_BYTE);
    }
}

static void encode(const wire_message *message, fake_message *out)
{
    kvarve_error err = {0};
    const kvarve_status status =
        wire_encode(message, out->bytes, sizeof out->bytes, &out->size, &err);

    KVARVE_ASSERT(status == KVARVE_OK);
}

static fake_message *more(fake_daemon *fake)
{
    KVARVE_ASSERT(fake->queued < FAKE_QUEUE_MAX);
    return &fake->queue[fake->queued++];
}

static void spoil(fake_daemon *fake, const wire_message *honest)
{
    const wire_message error = {.type = WIRE_ERROR,
                                .id = fake->plan.fault == FAULT_ERROR_ZERO ? 0 : honest->id,
                                .as.error = {.status = fake->plan.fault == FAULT_ERROR
                                                           ? (uint32_t)fake->plan.value
                                                           : KVARVE_INVALID,
                                             .text = "so it is"}};
    const wire_message other = {
        .type = honest->type == WIRE_DONE ? WIRE_LEASE_EXTENT_IS : WIRE_DONE, .id = honest->id};
    fake_message *last = &fake->queue[fake->queued - 1];

    switch (fake->plan.fault) {
    case FAULT_CLOSE:
        fake->is_closed = true;
        fake->queued = 0;
        break;
    case FAULT_SILENCE:
        fake->queued--;
        break;
    case FAULT_OTHER_ID:
        last->bytes[12] ^= 0x40; /* the number: bytes 8 to 15 */
        break;
    case FAULT_OTHER_TYPE:
        encode(&other, last);
        break;
    case FAULT_TWICE:
        *more(fake) = *last;
        break;
    case FAULT_SHORT:
        last->size--;
        break;
    case FAULT_LONG:
        last->bytes[last->size++] = 0;
        break;
    case FAULT_ERROR_ZERO:
    case FAULT_ERROR:
        encode(&error, last);
        break;
    case FAULT_BITS:
        flip_bits(last, fake->plan.value);
        break;
    case FAULT_NONE:
    case FAULT_OFFSET:
    case FAULT_SIZE:
    case FAULT_TOTAL:
    case FAULT_EMPTY:
    case FAULT_GROUP:
    case FAULT_EARLY:
    case FAULT_COUNT:
        break; /* by its fields */
    }
}

/* --- the transport --- */

static fake_daemon *fake_of(client_transport *at)
{
    return (fake_daemon *)(void *)at;
}

static void answer_parked(fake_daemon *fake)
{
    wire_message reply = {.type = WIRE_PUT_STATE, .id = fake->parked};

    reply.as.put_state.status = fake->is_aborted ? aborted : put_status(fake);
    fake->parked = 0;
    encode(&reply, more(fake));
}

static int send_message(client_transport *base, const void *bytes, size_t size,
                        const kvarve_mapping *letter, uint64_t deadline_ns)
{
    fake_daemon *fake = fake_of(base);
    wire_message request;
    fake_items items;
    wire_message reply = {.items = &items};
    kvarve_error err = {0};
    const bool is_wrong = fake->plan.fault != FAULT_NONE && fake->answers == fake->plan.at;
    kvarve_status status;

    (void)letter;
    (void)deadline_ns;
    if (fake->is_closed) {
        return -EPIPE;
    }
    status = wire_decode(bytes, size, &request, &err);
    KVARVE_ASSERT(status == KVARVE_OK);
    memset(&items, 0, sizeof items);
    if (request.type == WIRE_PUT_WAIT && request.as.put_wait.timeout_ms != 0 && !fake->is_acked) {
        fake->parked = request.id;
        if (fake->plan.fault == FAULT_EARLY) {
            fake->is_hit = true;
            answer_parked(fake);
        }
        return 0;
    }
    reply.type = (wire_type)wire_type_reply(request.type);
    reply.id = request.id;
    answer(fake, &request, is_wrong, &items, &reply);
    if (is_wrong && fake->plan.fault == FAULT_EMPTY &&
        (reply.type == WIRE_PUT_PLANNED || reply.type == WIRE_LEASE_PAGES_ARE ||
         reply.type == WIRE_FOUND_ALL || reply.type == WIRE_DOCUMENT_IS ||
         reply.type == WIRE_PUT_FIRST_TOKENS_ARE)) {
        reply.count = 0;
    }
    encode(&reply, more(fake));
    if (is_wrong) {
        fake->is_hit = true;
        spoil(fake, &reply);
    }
    fake->answers++;
    if ((fake->is_acked || fake->is_aborted) && fake->parked != 0 && !fake->is_closed) {
        answer_parked(fake);
    }
    return 0;
}

static int64_t receive_message(client_transport *base, void *bytes, size_t room,
                               uint64_t deadline_ns)
{
    fake_daemon *fake = fake_of(base);
    kvarve_executor *executor = world_env(fake->world)->executor;
    const bool is_moving = deadline_ns > 0 && executor->poll(executor);
    size_t size;

    if (fake->queued == 0 && fake->is_closed) {
        return -ECONNRESET;
    }
    if (fake->queued == 0) {
        return is_moving ? 0 : -ETIMEDOUT;
    }
    size = fake->queue[0].size;
    KVARVE_ASSERT(size <= room);
    memcpy(bytes, fake->queue[0].bytes, size);
    fake->queued--;
    memmove(&fake->queue[0], &fake->queue[1], fake->queued * sizeof fake->queue[0]);
    return (int64_t)size;
}

static int map_arena(client_transport *base, size_t size, kvarve_mapping *out)
{
    if (size != FAKE_ARENA_BYTES) {
        return -EINVAL;
    }
    *out = (kvarve_mapping){.base = fake_of(base)->arena, .size = size, .fd = -1};
    return 0;
}

static void unmap_arena(client_transport *base, kvarve_mapping *arena)
{
    (void)base;
    *arena = (kvarve_mapping){.fd = -1};
}

static int descriptor_of(const client_transport *base)
{
    (void)base;
    return -1;
}

static void close_transport(client_transport *base)
{
    fake_of(base)->is_closed = true;
}

void fake_begin(fake_daemon *fake, sim_world *world, const fake_plan *plan)
{
    *fake = (fake_daemon){.base = {.send = send_message,
                                   .receive = receive_message,
                                   .map_arena = map_arena,
                                   .unmap_arena = unmap_arena,
                                   .descriptor = descriptor_of,
                                   .close = close_transport},
                          .world = world,
                          .plan = *plan,
                          .arena = kvarve_allocate(FAKE_ARENA_BYTES),
                          .queue = kvarve_allocate_array(FAKE_QUEUE_MAX, sizeof(fake_message))};
    KVARVE_ASSERT(fake->arena != NULL && fake->queue != NULL);
}

void fake_end(fake_daemon *fake)
{
    kvarve_release(fake->arena);
    kvarve_release(fake->queue);
}

kvarve_status fake_connect(fake_daemon *fake, door **out, kvarve_error *err)
{
    const client_options options = {.env = world_env(fake->world),
                                    .letter_bytes = (uint64_t)1 << 20};

    return client_open(&fake->base, &options, out, err);
}
