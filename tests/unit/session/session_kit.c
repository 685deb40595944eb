/* session_kit.c - see session_kit.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session_kit.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "hash/hash.h"
#include "key/key.h"

/* --- the host --- */

static void take_event(void *context, const kvarve_event *event)
{
    const session_kit *kit = context;

    if (kit->host != NULL) {
        session_host_event(kit->host, event);
    }
}

static void learn_arena(session_kit *kit)
{
    const void *base = NULL;

    store_arena(kit->store, &base, NULL, NULL);
    memcpy(&kit->arena, &base, sizeof kit->arena); /* clients map it to write */
}

void kit_begin(session_kit *kit)
{
    const store_sink sink = {.context = kit, .event = take_event};
    const kvarve_store_options options = {.struct_size = sizeof options,
                                          .arena_bytes = (kit->arena_mib == 0 ? 4u : kit->arena_mib)
                                                         << 20,
                                          .flash_bytes_max = 256u << 20,
                                          .segment_bytes = 1u << 20,
                                          .checkpoints_max = 1000,
                                          .pool_threads = 1,
                                          .io_timeout_ms = 30000,
                                          .flags = STORE_OPEN_SHARED};
    session_host_options host;
    uint32_t tokens[KIT_TOKENS];
    kvarve_error err = {0};

    kit->blocks = kvarve_allocated_blocks();
    kit->world = world_create(7);
    if (store_open(world_env(kit->world), "store", &options, &sink, &kit->store, &err) !=
        KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    host = (session_host_options){.store = kit->store,
                                  .env = world_env(kit->world),
                                  .epoch = 7,
                                  .io_timeout_ms = 30000,
                                  .limits = kit->limits,
                                  .pid = 4711,
                                  .version = "0.1.0"};
    if (session_host_create(&host, &kit->host, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    learn_arena(kit);
    kit->ranks = kit->ranks == 0 ? 1 : kit->ranks;
    for (uint32_t i = 0; i < KIT_TOKENS; i++) {
        tokens[i] = i + 1;
    }
    assert_int_equal(kvarve_prefix_create(&kit->prefix, NULL), KVARVE_OK);
    assert_int_equal(kvarve_prefix_append(kit->prefix, tokens, KIT_TOKENS, NULL), KVARVE_OK);
}

kvarve_statistics kit_statistics(const session_kit *kit)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    store_statistics(kit->store, &now);
    return now;
}

void kit_run(session_kit *kit)
{
    bool has_done = true;

    while (has_done) {
        has_done = store_poll(kit->store);
        for (uint32_t i = 0; i < KIT_CLIENTS_MAX; i++) {
            if (kit->clients[i] != NULL) {
                (void)session_poll(kit->clients[i]->session);
            }
        }
    }
}

void kit_advance(session_kit *kit, uint64_t milliseconds)
{
    world_advance(kit->world, milliseconds * KIT_MS);
    kit_run(kit);
}

void kit_end(session_kit *kit)
{
    kvarve_statistics left;

    for (uint32_t i = 0; i < KIT_CLIENTS_MAX; i++) {
        kit_die(kit->clients[i]);
    }
    kit_run(kit);
    left = kit_statistics(kit);
    assert_int_equal(left.puts_open, 0);
    assert_int_equal(left.leases_open, 0);
    store_shut_down(kit->store);
    while (!store_is_idle(kit->store)) {
        (void)store_poll(kit->store);
    }
    session_host_destroy(kit->host);
    store_close(kit->store); /* asserts that no put and no lease is left */
    kvarve_prefix_free(kit->prefix);
    world_destroy(kit->world);
    assert_int_equal(kvarve_allocated_blocks(), kit->blocks);
}

/* --- clients --- */

kit_client *kit_connect_silent(session_kit *kit)
{
    kit_client *client = kvarve_allocate(sizeof *client);
    const session_peer peer = {.pid = 100, .started_at = 1, .uid = kit->uid};
    uint32_t place = 0;

    assert_non_null(client);
    while (kit->clients[place] != NULL) {
        place++;
        assert_in_range(place, 0, KIT_CLIENTS_MAX - 1);
    }
    client->kit = kit;
    client->letter = kvarve_allocate(KIT_LETTER_BYTES);
    assert_non_null(client->letter);
    if (session_open(kit->host, &peer, &client->session, &client->err) != KVARVE_OK) {
        fail_msg("%s", client->err.text);
    }
    session_lend_letter(client->session, client->letter, KIT_LETTER_BYTES);
    kit->clients[place] = client;
    return client;
}

static void open_namespace(kit_client *client)
{
    static const char identity[] = "{\"weights\":\"abc\"}";
    const session_kit *kit = client->kit;
    const wire_group groups[2] = {
        {.page_class = KVARVE_CLASS_PREFIX, .span_tokens = KIT_SPAN, .page_bytes = KIT_PAGE_BYTES},
        {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = KIT_PAGE_BYTES}};
    wire_message request = {.type = WIRE_NAMESPACE_OPEN, .count = 2, .items = groups};

    request.as.namespace_open = (wire_namespace_open){
        .rank_count = kit->ranks,
        .flags = kit->is_exact ? KVARVE_NAMESPACE_EXACT : 0,
        .identity = kit_lay(client, identity, sizeof identity - 1),
    };
    kit_ask(client, &request, WIRE_NAMESPACE_OPENED);
    client->space = client->reply.as.namespace_opened.space;
}

kit_client *kit_connect(session_kit *kit)
{
    kit_client *client = kit_connect_silent(kit);
    wire_message request = {.type = WIRE_HELLO};

    request.as.hello = (wire_hello){.magic = WIRE_MAGIC,
                                    .version_oldest = 1,
                                    .version_newest = 1,
                                    .pid = 100,
                                    .letter_bytes = KIT_LETTER_BYTES};
    kit_ask(client, &request, WIRE_WELCOME);
    open_namespace(client);
    return client;
}

void kit_die(kit_client *client)
{
    if (client == NULL) {
        return;
    }
    for (uint32_t i = 0; i < KIT_CLIENTS_MAX; i++) {
        if (client->kit->clients[i] == client) {
            client->kit->clients[i] = NULL;
        }
    }
    session_destroy(client->session);
    kvarve_release(client->letter);
    kvarve_release(client);
}

session_counters kit_count(const kit_client *client)
{
    session_counters counters;

    session_count(client->session, &counters);
    return counters;
}

/* --- the letter --- */

wire_letter kit_lay(kit_client *client, const void *bytes, size_t size)
{
    wire_letter range = {.offset = 0, .size = size};

    if (size == 0) {
        return range;
    }
    if (client->letter_used + size > KIT_LETTER_BYTES) {
        client->letter_used = 0;
    }
    range.offset = client->letter_used;
    memcpy(client->letter + client->letter_used, bytes, size);
    client->letter_used += (size + WIRE_LETTER_ALIGN - 1) / WIRE_LETTER_ALIGN * WIRE_LETTER_ALIGN;
    return range;
}

wire_prefix kit_lay_prefix(kit_client *client, const kvarve_prefix *prefix)
{
    const prefix_image image = prefix_image_of(prefix);

    return (wire_prefix){
        .tokens = kit_lay(client, image.tokens, (size_t)image.length * WIRE_TOKEN_SIZE),
        .steps = kit_lay(client, image.steps,
                         (size_t)(image.length / WIRE_STEP_TOKENS + 1) * WIRE_STEP_SIZE)};
}

/* The bytes of a page: what it is, then something that depends on it. */
static void make_page(uint8_t out[KIT_PAGE_BYTES], uint32_t rank, uint32_t group, uint64_t position)
{
    uint64_t state = (uint64_t)rank << 48 | (uint64_t)group << 40 | position;

    for (size_t i = 0; i < KIT_PAGE_BYTES; i += 8) {
        const uint64_t next = world_next_random(&state);

        memcpy(out + i, &next, 8);
    }
}

static uint32_t lay_digest(uint8_t *out, uint32_t rank, uint32_t group, uint64_t position,
                           uint8_t variant)
{
    uint8_t page[KIT_PAGE_BYTES];
    wire_page_digest record = {.rank = rank, .group = group, .position = position};
    page_digest digest;

    make_page(page, rank, group, position);
    page[0] ^= variant;
    digest = page_digest_of(page, sizeof page);
    memcpy(record.digest, digest.bytes, sizeof record.digest);
    assert_int_equal(wire_record_encode(WIRE_RECORD_PAGE_DIGEST, &record, out, NULL), KVARVE_OK);
    return WIRE_RECORD_SIZE_PAGE_DIGEST;
}

wire_letter kit_lay_digests(kit_client *client, uint32_t rank, uint64_t tokens, uint8_t variant)
{
    uint8_t records[8192];
    size_t size = 0;
    const uint64_t pages = (tokens + KIT_SPAN - 1) / KIT_SPAN;

    for (uint32_t of = 0; of < client->kit->ranks; of++) {
        if (rank != KIT_EVERY_RANK && of != rank) {
            continue;
        }
        for (uint64_t i = 0; i < pages; i++) {
            size += lay_digest(records + size, of, 0, i, variant);
        }
        size += lay_digest(records + size, of, 1, 0, variant);
    }
    return kit_lay(client, records, size);
}

/* --- requests --- */

void kit_send(kit_client *client, wire_message *request)
{
    uint8_t bytes[WIRE_MESSAGE_MAX];
    kvarve_error err = {0};
    size_t size = 0;

    request->id = ++client->id;
    if (wire_encode(request, bytes, sizeof bytes, &size, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    client->is_closed = session_take(client->session, bytes, size, &client->err) != KVARVE_OK;
}

static void keep_event(kit_client *client)
{
    assert_in_range(client->event_count, 0, KIT_EVENTS_MAX - 1);
    client->events[client->event_count++] = client->reply.as.event;
}

bool kit_has_reply(kit_client *client)
{
    const void *bytes;
    size_t size;
    bool has_arena;

    while (session_next(client->session, &bytes, &size, &has_arena)) {
        memcpy(client->bytes, bytes, size);
        session_sent(client->session);
        if (wire_decode(client->bytes, size, &client->reply, &client->err) != KVARVE_OK) {
            fail_msg("%s", client->err.text);
        }
        assert_int_equal(has_arena, client->reply.type == WIRE_WELCOME);
        if (client->reply.type != WIRE_EVENT) {
            return true;
        }
        keep_event(client);
    }
    return false;
}

void kit_answered(kit_client *client, wire_type answer)
{
    if (!kit_has_reply(client)) {
        fail_msg("no answer, %s is wanted", wire_type_name(answer));
    }
    if (client->reply.type != answer) {
        fail_msg("%s instead of %s: %s", wire_type_name(client->reply.type), wire_type_name(answer),
                 client->reply.type == WIRE_ERROR ? client->reply.as.error.text : "");
    }
    assert_int_equal(client->reply.id, client->id);
}

void kit_ask(kit_client *client, wire_message *request, wire_type answer)
{
    kit_send(client, request);
    assert_false(client->is_closed);
    kit_answered(client, answer);
    assert_true(answer == wire_type_reply(request->type));
}

void kit_answered_error(kit_client *client, kvarve_status status)
{
    kit_answered(client, WIRE_ERROR);
    if (client->reply.as.error.status != (uint32_t)status) {
        fail_msg("status %u (%s) instead of %d", client->reply.as.error.status,
                 client->reply.as.error.text, status);
    }
    if (status != KVARVE_MISS && status != KVARVE_BUSY) {
        assert_true(client->reply.as.error.text[0] != 0);
    }
}

void kit_refused(kit_client *client, wire_message *request, kvarve_status status)
{
    kit_send(client, request);
    assert_false(client->is_closed);
    kit_answered_error(client, status);
}

bool kit_has_event(const kit_client *client, uint32_t kind, uint64_t cookie)
{
    for (uint32_t i = 0; i < client->event_count; i++) {
        if (client->events[i].kind == kind && client->events[i].cookie == cookie) {
            return true;
        }
    }
    return false;
}

/* --- puts --- */

wire_message kit_put_begin(kit_client *client, uint64_t tokens)
{
    wire_message request = {.type = WIRE_PUT_BEGIN};

    request.as.put_begin = (wire_put_begin){
        .space = client->space,
        .prefix = kit_lay_prefix(client, client->kit->prefix),
        .options = {.tokens = tokens, .kind = KVARVE_KIND_PROMPT},
    };
    if (client->kit->is_exact && tokens > 0) {
        request.as.put_begin.options.digests = kit_lay_digests(client, KIT_EVERY_RANK, tokens, 0);
    }
    return request;
}

uint64_t kit_begin_put(kit_client *client, uint64_t tokens)
{
    wire_message request = kit_put_begin(client, tokens);

    kit_ask(client, &request, WIRE_PUT_BEGUN);
    kit_run(client->kit); /* room on flash is made by a job */
    return client->reply.as.put_begun.put;
}

uint32_t kit_fill(kit_client *client, uint64_t put, uint32_t rank)
{
    wire_message request = {.type = WIRE_PUT_PLAN};
    uint32_t copied = 0;
    wire_plan_entry entry;

    request.as.put_plan = (wire_put_plan){.put = put, .rank = rank, .max = UINT32_MAX};
    kit_ask(client, &request, WIRE_PUT_PLANNED);
    assert_int_equal(client->reply.count, client->reply.as.put_planned.total);
    for (uint32_t i = 0; i < client->reply.count; i++) {
        uint8_t page[KIT_PAGE_BYTES];

        wire_item(&client->reply, i, &entry);
        if (entry.action == KVARVE_PAGE_COPY) {
            assert_int_equal(entry.offset % 4096, 0);
            assert_int_equal(entry.size, KIT_PAGE_BYTES);
            assert_int_equal(entry.has_expected, client->kit->is_exact);
            make_page(page, rank, entry.group, entry.position);
            memcpy(client->kit->arena + entry.offset, page, sizeof page);
            copied++;
        }
    }
    return copied;
}

void kit_ack(kit_client *client, uint64_t put, uint32_t rank)
{
    wire_message request = {.type = WIRE_PUT_ACK};

    request.as.put_ack = (wire_put_ack){.put = put, .rank = rank};
    kit_ask(client, &request, WIRE_PUT_STATE);
}

uint32_t kit_put_state(kit_client *client, uint64_t put)
{
    wire_message request = {.type = WIRE_PUT_WAIT};

    request.as.put_wait = (wire_put_wait){.put = put, .state = KVARVE_PUT_STAGED};
    kit_ask(client, &request, WIRE_PUT_STATE);
    return client->reply.as.put_state.status.state;
}

uint32_t kit_put_wait(kit_client *client, uint64_t put, uint32_t state)
{
    wire_message request = {.type = WIRE_PUT_WAIT};

    request.as.put_wait = (wire_put_wait){.put = put, .state = state, .timeout_ms = KIT_WAIT_MS};
    kit_send(client, &request);
    kit_run(client->kit);
    kit_answered(client, WIRE_PUT_STATE);
    return client->reply.as.put_state.status.state;
}

void kit_release_put(kit_client *client, uint64_t put)
{
    wire_message request = {.type = WIRE_PUT_RELEASE};

    request.as.put_release.put = put;
    kit_ask(client, &request, WIRE_DONE);
}

void kit_store(kit_client *client, uint64_t tokens)
{
    const uint64_t put = kit_begin_put(client, tokens);

    for (uint32_t rank = 0; rank < client->kit->ranks; rank++) {
        (void)kit_fill(client, put, rank);
        kit_ack(client, put, rank);
    }
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_release_put(client, put);
}

/* --- leases --- */

uint64_t kit_lease(kit_client *client, uint64_t tokens, uint32_t mode)
{
    wire_message request = {.type = WIRE_FIND};

    request.as.find = (wire_find){
        .space = client->space,
        .prefix = kit_lay_prefix(client, client->kit->prefix),
        .options = {.min_tokens = tokens, .max_tokens = tokens, .cookie = 5, .lease = mode},
        .max = 1};
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 1);
    assert_int_equal(client->reply.as.found.leased.tokens, tokens);
    return client->reply.as.found.lease;
}

uint64_t kit_export(kit_client *client, wire_handle_kind kind, uint64_t handle, uint8_t token[32])
{
    wire_message request = {.type = WIRE_EXPORT};

    request.as.export = (wire_export){.kind = kind, .handle = handle};
    kit_ask(client, &request, WIRE_EXPORTED);
    memcpy(token, client->reply.as.exported.token, 32);
    return handle;
}

uint64_t kit_attach(kit_client *client, const uint8_t token[32], uint32_t rank)
{
    wire_message request = {.type = WIRE_ATTACH};

    request.as.attach = (wire_attach){.space = client->space, .rank = rank};
    memcpy(request.as.attach.token, token, 32);
    kit_ask(client, &request, WIRE_ATTACHED);
    return client->reply.as.attached.handle;
}

bool kit_is_right(const session_kit *kit, const wire_page_entry *page, uint32_t rank)
{
    uint8_t wanted[KIT_PAGE_BYTES];
    page_digest digest;

    make_page(wanted, rank, page->group, page->position);
    digest = page_digest_of(wanted, sizeof wanted);
    return page->size == sizeof wanted &&
           memcmp(page->digest, digest.bytes, sizeof page->digest) == 0 &&
           memcmp(kit->arena + page->offset, wanted, sizeof wanted) == 0;
}
