/*
 * test_hostile.c - clients that send anything, and a daemon that runs out of memory.
 *
 * Messages that a client could send are made of numbers that exist and numbers that do not, then
 * some bytes of a quarter of them are changed. Clients die and come back in between, time passes,
 * letters and pages are scribbled over. Whatever is answered, the daemon goes on, and at the end
 * the store holds nothing of anybody and serves as before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "session_kit.h"

#define MESSAGES 10000u
#define SEEDS    3u
#define CLIENTS  3u

/* What a client was given, some of each. */
typedef enum known_kind {
    KNOWN_PUT,
    KNOWN_LEASE,
    KNOWN_PIN,
    KNOWN_KINDS,
} known_kind;

#define KNOWN_EACH 2u

typedef struct attack {
    session_kit kit;
    uint64_t seed;
    uint64_t random;
    uint32_t place; /* of the client whose turn it is */
    uint64_t known[CLIENTS][KNOWN_KINDS][KNOWN_EACH];
    uint8_t tokens[4][32];
    uint32_t token_count;
    uint64_t answers;
    uint64_t errors;
    uint64_t closed;
} attack;

static uint64_t draw(attack *at, uint64_t below)
{
    return world_next_random(&at->random) % below;
}

/* Mostly one that exists, sometimes one of another kind, sometimes anything. */
static uint64_t draw_handle(attack *at, known_kind kind)
{
    uint64_t handle = at->known[at->place][kind][draw(at, KNOWN_EACH)];

    for (uint32_t i = 0; handle == 0 && i < KNOWN_EACH; i++) {
        handle = at->known[at->place][kind][i];
    }
    if (draw(at, 10) == 0) {
        handle = draw(at, 24) + 1;
    } else if (draw(at, 50) == 0) {
        handle = draw(at, UINT64_MAX - 1) + 1;
    }
    return handle == 0 ? 1 : handle;
}

static void learn(attack *at, known_kind kind, uint64_t handle)
{
    if (handle != 0) {
        at->known[at->place][kind][draw(at, KNOWN_EACH)] = handle;
    }
}

/* It is released with this message, if it comes through. */
static void forget(attack *at, uint64_t handle)
{
    for (uint32_t kind = 0; kind < KNOWN_KINDS; kind++) {
        for (uint32_t i = 0; i < KNOWN_EACH; i++) {
            uint64_t *known = &at->known[at->place][kind][i];

            *known = *known == handle ? 0 : *known;
        }
    }
}

static wire_letter draw_range(attack *at, uint64_t unit)
{
    wire_letter range = {.offset = draw(at, KIT_LETTER_BYTES / 8) * 8, .size = draw(at, 64) * unit};

    if (range.size == 0 || draw(at, 50) == 0) {
        range = (wire_letter){0};
    }
    return range;
}

static wire_prefix draw_prefix(attack *at, kit_client *client)
{
    if (draw(at, 10) > 0) {
        return kit_lay_prefix(client, at->kit.prefix);
    }
    return (wire_prefix){.tokens = draw_range(at, 4), .steps = draw_range(at, 32)};
}

static wire_put_options draw_put_options(attack *at)
{
    wire_put_options options = {.tokens = draw(at, 8) * 5,
                                .kind = (uint32_t)draw(at, 3),
                                .cookie = draw(at, 5),
                                .timeout_ms = (uint32_t)draw(at, 2000),
                                .flags = draw(at, 4) == 0 ? (uint32_t)draw(at, 4) : 0};

    if (draw(at, 12) == 0) {
        options.digests = draw_range(at, 32);
        options.sizes = draw_range(at, 8);
    }
    return options;
}

static wire_find_options draw_find_options(attack *at)
{
    return (wire_find_options){.min_tokens = draw(at, 10),
                               .max_tokens = draw(at, KIT_TOKENS + 3),
                               .multiple_of = draw(at, 3),
                               .cookie = draw(at, 5),
                               .kinds = (uint32_t)draw(at, 8),
                               .preferred_kind = (uint32_t)draw(at, 5),
                               .lease = (uint32_t)draw(at, 3),
                               .flags = (uint32_t)draw(at, 4),
                               .timeout_ms = (uint32_t)draw(at, 200)};
}

static void draw_put_message(attack *at, kit_client *client, wire_message *out)
{
    const uint32_t rank = (uint32_t)draw(at, 3);
    const uint64_t put = draw_handle(at, KNOWN_PUT);

    switch ((uint32_t)out->type) {
    case WIRE_PUT_BEGIN:
        out->as.put_begin = (wire_put_begin){.space = draw(at, 20) == 0 ? put : client->space,
                                             .prefix = draw_prefix(at, client),
                                             .options = draw_put_options(at)};
        break;
    case WIRE_PUT_WAIT:
        out->as.put_wait = (wire_put_wait){
            .put = put, .state = 1 + (uint32_t)draw(at, 3), .timeout_ms = (uint32_t)draw(at, 99)};
        break;
    case WIRE_PUT_PLAN:
        out->as.put_plan = (wire_put_plan){.put = put,
                                           .rank = rank,
                                           .max = (uint32_t)draw(at, 30),
                                           .from = draw(at, 3) == 0 ? draw(at, 4) : 0};
        break;
    case WIRE_PUT_ACK:
        out->as.put_ack =
            (wire_put_ack){.put = put,
                           .rank = rank,
                           .digests = draw(at, 12) == 0 ? draw_range(at, 32) : (wire_letter){0}};
        break;
    case WIRE_PUT_FAIL:
        out->as.put_fail = (wire_put_fail){.put = put, .rank = rank};
        break;
    case WIRE_PUT_EXTEND:
        out->as.put_extend = (wire_put_extend){
            .put = put, .prefix = draw_prefix(at, client), .tokens = draw(at, KIT_TOKENS + 2)};
        break;
    case WIRE_PUT_CLOSE:
        out->as.put_close = (wire_put_close){
            .put = put, .prefix = draw_prefix(at, client), .options = draw_put_options(at)};
        break;
    case WIRE_PUT_ABORT:
        out->as.put_abort = (wire_put_abort){.put = put, .refusal = 1 + (uint32_t)draw(at, 12)};
        break;
    case WIRE_PUT_RELEASE:
        out->as.put_release.put = put;
        forget(at, put);
        break;
    default: /* FIRST_TOKENS */
        out->as.put_first_tokens.put = put;
        break;
    }
}

static void draw_lease_message(attack *at, kit_client *client, wire_message *out)
{
    const uint32_t rank = (uint32_t)draw(at, 2 + (draw(at, 9) == 0));
    const uint32_t group = (uint32_t)draw(at, 3);
    const uint64_t lease = draw_handle(at, KNOWN_LEASE);

    switch ((uint32_t)out->type) {
    case WIRE_FIND:
        out->as.find = (wire_find){.space = client->space,
                                   .prefix = draw_prefix(at, client),
                                   .options = draw_find_options(at),
                                   .from = (uint32_t)draw(at, 3),
                                   .max = (uint32_t)draw(at, 20)};
        break;
    case WIRE_FIND_POINTS:
        out->as.find_points = (wire_find_points){.space = client->space,
                                                 .points = draw_range(at, 40),
                                                 .options = draw_find_options(at),
                                                 .max = 3};
        break;
    case WIRE_FIND_ALL:
        out->as.find_all = (wire_find_all){.space = client->space,
                                           .prefix = draw_prefix(at, client),
                                           .options = draw_find_options(at)};
        break;
    case WIRE_LEASE_EXTENT:
        out->as.lease_extent = (wire_lease_extent){lease, rank, group};
        break;
    case WIRE_LEASE_PAGES:
        out->as.lease_pages = (wire_lease_pages){
            .lease = lease, .rank = rank, .max = (uint32_t)draw(at, 20), .from = draw(at, 3)};
        break;
    case WIRE_PAGE_BEGIN:
        out->as.page_begin = (wire_page_begin){.lease = lease,
                                               .rank = rank,
                                               .group = group,
                                               .position = draw(at, 11),
                                               .timeout_ms = (uint32_t)draw(at, 99)};
        break;
    case WIRE_PAGE_END:
        out->as.page_end = (wire_page_end){.lease = lease,
                                           .pin = draw_handle(at, KNOWN_PIN),
                                           .was_verified = (uint8_t)draw(at, 2),
                                           .is_right = draw(at, 8) > 0};
        forget(at, out->as.page_end.pin);
        break;
    case WIRE_READ_AHEAD:
        out->as.read_ahead = (wire_read_ahead){
            .lease = lease, .rank = rank, .group = group, .position = draw(at, 9), .count = 9};
        break;
    case WIRE_LEASE_RELEASE:
        out->as.lease_release.lease = lease;
        forget(at, lease);
        break;
    default: /* LOAD and WAIT are alike */
        out->as.lease_wait =
            (wire_lease_wait){.lease = lease, .timeout_ms = (uint32_t)draw(at, 99)};
        break;
    }
}

static void draw_other_message(attack *at, kit_client *client, wire_message *out)
{
    known_kind kind;

    switch ((uint32_t)out->type) {
    case WIRE_NAMESPACE_RELEASE:
        out->as.namespace_release.space = draw_handle(at, KNOWN_PUT);
        break;
    case WIRE_EXPORT:
        kind = (known_kind)draw(at, 2);
        out->as.export = (wire_export){.kind = 1 + (uint32_t)kind, .handle = draw_handle(at, kind)};
        break;
    case WIRE_ATTACH:
        out->as.attach = (wire_attach){.space = client->space, .rank = (uint32_t)draw(at, 3)};
        memcpy(out->as.attach.token, at->tokens[draw(at, 4)], 32);
        break;
    case WIRE_FENCE:
        out->as.fence = (wire_fence){.space = client->space, .blocks = draw_range(at, 4)};
        break;
    case WIRE_VERIFY:
    case WIRE_TRIM:
        out->as.verify = (wire_verify){(uint8_t)draw(at, 2), (uint32_t)draw(at, 50)};
        break;
    case WIRE_DOCUMENT:
        memcpy(out->as.document.namespace_text, "recurrent", 10);
        break;
    default: /* STATISTICS, STATUS, LIST, DROP: nothing, or zeros */
        break;
    }
}

static bool knows(const attack *at, known_kind kind)
{
    return at->known[at->place][kind][0] != 0 || at->known[at->place][kind][1] != 0;
}

/* Who has nothing yet gets something, mostly. */
static wire_type begin_first(attack *at, wire_type type)
{
    if (draw(at, 8) == 0) {
        return type;
    }
    if (type == WIRE_NAMESPACE_RELEASE) {
        return WIRE_ATTACH; /* it is the end of this client */
    }
    if (type == WIRE_PUT_BEGIN && knows(at, KNOWN_PUT)) {
        return WIRE_PUT_PLAN; /* many puts that nobody goes on with only wait for each other */
    }
    if (type > WIRE_PUT_BEGIN && type <= WIRE_PUT_RELEASE && !knows(at, KNOWN_PUT)) {
        return WIRE_PUT_BEGIN;
    }
    if (type >= WIRE_LEASE_LOAD && type <= WIRE_LEASE_RELEASE && !knows(at, KNOWN_LEASE)) {
        return WIRE_FIND;
    }
    return type == WIRE_PAGE_END && !knows(at, KNOWN_PIN) ? WIRE_PAGE_BEGIN : type;
}

static wire_message draw_message(attack *at, kit_client *client)
{
    static const wire_type types[] = {
        WIRE_PUT_BEGIN,    WIRE_PUT_BEGIN,   WIRE_PUT_BEGIN,   WIRE_PUT_BEGIN,
        WIRE_PUT_PLAN,     WIRE_PUT_PLAN,    WIRE_PUT_PLAN,    WIRE_PUT_PLAN,
        WIRE_PUT_PLAN,     WIRE_PUT_PLAN,    WIRE_PUT_PLAN,    WIRE_PUT_ACK,
        WIRE_PUT_ACK,      WIRE_PUT_ACK,     WIRE_PUT_ACK,     WIRE_PUT_ACK,
        WIRE_PUT_ACK,      WIRE_PUT_WAIT,    WIRE_PUT_FAIL,    WIRE_PUT_EXTEND,
        WIRE_PUT_CLOSE,    WIRE_PUT_ABORT,   WIRE_PUT_RELEASE, WIRE_PUT_FIRST_TOKENS,
        WIRE_FIND,         WIRE_FIND,        WIRE_FIND,        WIRE_FIND,
        WIRE_FIND_POINTS,  WIRE_FIND_ALL,    WIRE_LEASE_LOAD,  WIRE_LEASE_WAIT,
        WIRE_LEASE_EXTENT, WIRE_LEASE_PAGES, WIRE_LEASE_PAGES, WIRE_PAGE_BEGIN,
        WIRE_PAGE_BEGIN,   WIRE_PAGE_END,    WIRE_READ_AHEAD,  WIRE_LEASE_RELEASE,
        WIRE_EXPORT,       WIRE_ATTACH,      WIRE_ATTACH,      WIRE_FENCE,
        WIRE_STATISTICS,   WIRE_LIST,        WIRE_DROP,        WIRE_VERIFY,
        WIRE_TRIM,         WIRE_DOCUMENT,    WIRE_STATUS,      WIRE_NAMESPACE_RELEASE};
    wire_message message = {.type = types[draw(at, sizeof types / sizeof types[0])]};

    message.type = begin_first(at, message.type);
    if (message.type >= WIRE_PUT_BEGIN && message.type <= WIRE_PUT_RELEASE) {
        draw_put_message(at, client, &message);
    } else if (message.type >= WIRE_FIND && message.type <= WIRE_LEASE_RELEASE) {
        draw_lease_message(at, client, &message);
    } else {
        draw_other_message(at, client, &message);
    }
    message.id = ++client->id;
    return message;
}

static size_t mutate(attack *at, uint8_t *bytes, size_t size)
{
    static const uint8_t values[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    const uint64_t changes = draw(at, 4) + 1;

    for (uint64_t i = 0; i < changes; i++) {
        const size_t from = draw(at, 60) == 0 ? 0 : WIRE_HEAD_SIZE; /* few are closed for it */
        uint8_t *byte = &bytes[from < size ? from + draw(at, size - from) : 0];

        *byte = draw(at, 2) == 0 ? values[draw(at, sizeof values)] : (uint8_t)(*byte ^ 1u);
    }
    if (draw(at, 100) == 0) {
        return draw(at, size + 1);
    }
    return size;
}

static void learn_from(attack *at, const wire_message *reply)
{
    switch ((uint32_t)reply->type) {
    case WIRE_PUT_BEGUN:
        learn(at, KNOWN_PUT, reply->as.put_begun.put);
        break;
    case WIRE_FOUND:
        learn(at, KNOWN_LEASE, reply->as.found.lease);
        break;
    case WIRE_PAGE_BEGUN:
        learn(at, KNOWN_PIN, reply->as.page_begun.pin);
        break;
    case WIRE_ATTACHED:
        learn(at, reply->as.attached.kind == WIRE_HANDLE_PUT ? KNOWN_PUT : KNOWN_LEASE,
              reply->as.attached.handle);
        break;
    case WIRE_EXPORTED:
        memcpy(at->tokens[at->token_count++ % 4], reply->as.exported.token, 32);
        break;
    default:
        break;
    }
}

static void take_answers(attack *at, kit_client *client)
{
    while (kit_has_reply(client)) {
        client->event_count = 0;
        at->answers++;
        at->errors += client->reply.type == WIRE_ERROR;
        learn_from(at, &client->reply);
    }
    client->event_count = 0;
}

/* Somebody who does not know what it does, and has the memory mapped. */
static void scribble(attack *at, kit_client *client)
{
    const uint64_t arena_bytes = UINT64_C(1) << 20;

    for (uint32_t i = 0; i < 64; i++) {
        client->letter[draw(at, KIT_LETTER_BYTES)] = (uint8_t)draw(at, 256);
        at->kit.arena[4096 + draw(at, arena_bytes)] ^= (uint8_t)draw(at, 256);
    }
}

static void send_one(attack *at, kit_client *client)
{
    uint8_t bytes[4096];
    size_t size = 0;
    wire_message message = draw_message(at, client);

    if (wire_encode(&message, bytes, sizeof bytes, &size, NULL) != KVARVE_OK) {
        return;
    }
    if (draw(at, 4) == 0) {
        size = mutate(at, bytes, size);
    }
    client->is_closed = session_take(client->session, bytes, size, &client->err) != KVARVE_OK;
    if (draw(at, 4) > 0) {
        take_answers(at, client);
    }
}

static void step(attack *at, uint32_t place)
{
    kit_client *client = at->kit.clients[place];

    at->place = place;
    if (client == NULL) { /* the first free place, which is this one or another */
        client = kit_connect(&at->kit);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            if (at->kit.clients[i] == client) {
                memset(at->known[i], 0, sizeof at->known[i]);
            }
        }
        return;
    }
    if (kit_count(client).is_gone || client->is_closed || kit_count(client).namespaces == 0) {
        at->closed++;
        if (client->is_closed && draw(at, 2) == 0) {
            client->is_closed = false;
            (void)session_gone(client->session);
        } else {
            kit_die(client);
        }
        return;
    }
    send_one(at, client);
    switch (draw(at, 32)) {
    case 0:
        world_advance(at->kit.world, draw(at, 400) * KIT_MS);
        break;
    case 1:
        scribble(at, client);
        break;
    case 2:
        kit_run(&at->kit);
        break;
    default:
        (void)store_poll(at->kit.store);
        (void)session_poll(client->session);
        break;
    }
}

/* One seed's worth; what the store had done at its end. */
static kvarve_statistics run_attack(attack *at)
{
    kit_client *honest;
    kvarve_statistics left;

    kit_begin(&at->kit);
    honest = kit_connect(&at->kit);
    for (uint64_t tokens = 10; tokens <= 30; tokens += 10) {
        kit_store(honest, tokens);
    }
    for (uint32_t i = 0; i < MESSAGES / SEEDS + 1; i++) {
        step(at, (uint32_t)draw(at, CLIENTS));
    }
    for (uint32_t i = 0; i < KIT_CLIENTS_MAX; i++) {
        kit_die(at->kit.clients[i]);
    }
    kit_run(&at->kit);
    left = kit_statistics(&at->kit);
    print_message("seed %d: %d answers, %d errors, %d closed, %d puts durable, %d hits\n",
                  (int)at->seed, (int)at->answers, (int)at->errors, (int)at->closed,
                  (int)left.puts_durable, (int)left.hits);
    assert_int_equal(left.puts_open, 0);
    assert_int_equal(left.leases_open, 0);
    kit_store(kit_connect(&at->kit), KIT_TOKENS);
    kit_end(&at->kit);
    return left;
}

static void test_hostile__anything_may_come(void **unused)
{
    uint64_t durable = 0;
    uint64_t hits = 0;

    (void)unused;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        attack at = {.kit = {.ranks = 2,
                             .arena_mib = 2,
                             .limits = {.handles = 40, .parked = 10, .pages = 10}},
                     .seed = seed,
                     .random = seed};
        const kvarve_statistics left = run_attack(&at);

        assert_true(at.answers - at.errors > MESSAGES / SEEDS / 3); /* it came inside */
        durable += left.puts_durable;
        hits += left.hits;
    }
    assert_true(durable > 3 * (uint64_t)SEEDS); /* of them, too, one was stored */
    assert_true(hits > 100);
}

/* --- memory --- */

typedef struct shortage {
    uint64_t number; /* of the allocation that fails */
    bool was_hit;
} shortage;

static int allocate_unless(void *context, uint64_t number)
{
    shortage *at = context;

    at->was_hit = at->was_hit || number == at->number;
    return number != at->number;
}

/* Send; is the answer of this type? */
static bool try(kit_client *client, wire_message *request)
{
    bool is_answered = false;

    if (session_is_broken(client->session)) {
        return false;
    }
    kit_send(client, request);
    kit_run(client->kit);
    while (kit_has_reply(client)) {
        if (client->reply.id == client->id) {
            is_answered = client->reply.type == wire_type_reply(request->type);
            break;
        }
    }
    return is_answered;
}

/* Copy one rank, whatever comes of it. */
static void try_rank(kit_client *client, uint64_t put, uint32_t rank)
{
    wire_message request = {.type = WIRE_PUT_PLAN};

    request.as.put_plan = (wire_put_plan){.put = put, .rank = rank, .max = 100};
    (void)try(client, &request);
    request = (wire_message){.type = WIRE_PUT_ACK};
    request.as.put_ack =
        (wire_put_ack){.put = put, .rank = rank, .digests = kit_lay_digests(client, rank, 10, 0)};
    (void)try(client, &request);
}

/* A put of two processes, in memory that may end at any point. */
static void try_put(kit_client *first, kit_client *second)
{
    wire_message request = kit_put_begin(first, 10);
    wire_message attach = {.type = WIRE_ATTACH};
    uint64_t put;

    request.as.put_begin.options.cookie = 1;
    put = try(first, &request) ? first->reply.as.put_begun.put : 1;
    request = (wire_message){.type = WIRE_EXPORT};
    request.as.export = (wire_export){.kind = WIRE_HANDLE_PUT, .handle = put};
    if (try(first, &request)) {
        attach.as.attach = (wire_attach){.space = second->space, .rank = 1};
        memcpy(attach.as.attach.token, first->reply.as.exported.token, 32);
        if (try(second, &attach)) {
            try_rank(second, second->reply.as.attached.handle, 1);
        }
    }
    try_rank(first, put, 0);
    request = (wire_message){.type = WIRE_PUT_RELEASE};
    request.as.put_release.put = put;
    (void)try(first, &request);
}

static void try_lease(kit_client *client)
{
    wire_message request = {.type = WIRE_FIND};
    uint64_t lease;

    request.as.find = (wire_find){.space = client->space,
                                  .prefix = kit_lay_prefix(client, client->kit->prefix),
                                  .options = {.lease = KVARVE_LEASE_LOAD, .cookie = 2},
                                  .max = 4};
    lease = try(client, &request) ? client->reply.as.found.lease : 0;
    lease = lease == 0 ? 1 : lease;
    request = (wire_message){.type = WIRE_LEASE_PAGES};
    request.as.lease_pages = (wire_lease_pages){.lease = lease, .max = 10};
    (void)try(client, &request);
    request = (wire_message){.type = WIRE_PAGE_BEGIN};
    request.as.page_begin = (wire_page_begin){.lease = lease, .timeout_ms = 10};
    (void)try(client, &request);
    request = (wire_message){.type = WIRE_LIST};
    (void)try(client, &request);
}

static void test_memory__each_allocation_may_fail(void **unused)
{
    shortage at = {.number = 0, .was_hit = true};

    (void)unused;
    for (; at.was_hit; at.number++) {
        session_kit kit = {.ranks = 2};
        kit_client *first;
        kit_client *second;

        kit_begin(&kit);
        world_reserve(kit.world, 16u << 20);
        first = kit_connect(&kit);
        second = kit_connect(&kit);
        kit_store(first, 8);
        at.was_hit = false;
        kvarve_allocate_set_hook(allocate_unless, &at);
        try_put(first, second);
        try_lease(second);
        kvarve_allocate_set_hook(NULL, NULL);
        kit_end(&kit);
    }
    print_message("%d allocations\n", (int)at.number - 1);
    assert_true(at.number > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile__anything_may_come),
        cmocka_unit_test(test_memory__each_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
