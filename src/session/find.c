/*
 * find.c - requests that look for boundaries.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "key/key.h"
#include "session/session_private.h"

wire_boundary boundary_of(const kvarve_boundary *boundary)
{
    wire_boundary made = {.tokens = boundary->tokens,
                          .bytes = boundary->bytes,
                          .bytes_to_read = boundary->bytes_to_read,
                          .expected_ns = boundary->expected_ns,
                          .draft_tokens = boundary->draft_tokens,
                          .kind = boundary->kind,
                          .tier = boundary->tier,
                          .state = boundary->state,
                          .flags = boundary->flags};

    memcpy(made.id, boundary->id, sizeof made.id);
    return made;
}

wire_miss miss_of(const kvarve_miss *miss)
{
    wire_miss made = {.reason = miss->reason,
                      .group = miss->group,
                      .common_tokens = miss->common_tokens,
                      .nearest_tokens = miss->nearest_tokens};

    wire_text_set(made.field, sizeof made.field, miss->field);
    return made;
}

static kvarve_find_options options_of(const wire_find_options *from)
{
    return (kvarve_find_options){.struct_size = sizeof(kvarve_find_options),
                                 .min_tokens = from->min_tokens,
                                 .max_tokens = from->max_tokens,
                                 .multiple_of = from->multiple_of,
                                 .kinds = from->kinds,
                                 .preferred_kind = from->preferred_kind,
                                 .lease = from->lease,
                                 .flags = from->flags,
                                 .timeout_ms = from->timeout_ms};
}

/* One find: what is asked, and where its answer goes. */
typedef struct search {
    session *at;
    uint64_t id;
    store_namespace *name;
    store_query query;
    const wire_find_options *options;
    size_t from;
    size_t max;
    kvarve_boundary *boundaries;
    size_t count;
    kvarve_miss miss;
    session_handle *lease; /* NULL: none */
} search;

/* Ask the store; a miss is an answer, too. */
static kvarve_status ask(search *find, kvarve_error *err)
{
    kvarve_find_options options = options_of(find->options);
    store_answer answer = {.boundaries = find->boundaries,
                           .max = find->from + find->max,
                           .count = &find->count,
                           .miss = &find->miss};
    kvarve_status status = KVARVE_OK;

    if (options.lease != KVARVE_LEASE_NONE) {
        status =
            handle_make_shared(find->at, HANDLE_LEASE, find->options->cookie, &find->lease, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (find->lease != NULL) {
        options.cookie = find->lease->cookie.number;
        answer.lease = &find->lease->shared->lease;
    }
    status = store_find(find->name, &find->query, &options, &answer, err);
    if (find->lease != NULL && status == KVARVE_OK) {
        find->lease->shared->name = find->name;
        handle_add(find->lease);
    } else if (find->lease != NULL) {
        handle_discard(find->lease);
        find->lease = NULL;
    }
    return status == KVARVE_MISS ? KVARVE_OK : status;
}

static void reply_found(search *find)
{
    wire_message reply = {.type = WIRE_FOUND, .id = find->id};
    kvarve_boundary leased;
    kvarve_error err = {0};

    for (size_t i = find->from; i < find->count; i++) {
        const wire_boundary item = boundary_of(&find->boundaries[i]);
        const kvarve_status status = reply_item(find->at, WIRE_FOUND, reply.count, &item, &err);

        if (status != KVARVE_OK) {
            session_reply_error(find->at, find->id, KVARVE_UNAVAILABLE, &err);
            return;
        }
        reply.count++;
    }
    reply.as.found.miss = miss_of(&find->miss);
    if (find->lease != NULL) {
        store_lease_boundary(find->lease->shared->lease, &leased);
        reply.as.found.lease = find->lease->number;
        reply.as.found.leased = boundary_of(&leased);
    }
    session_reply(find->at, &reply);
}

static kvarve_status run(search *find, kvarve_error *err)
{
    kvarve_status status;

    find->max = (size_t)kvarve_min_u64(find->max, WIRE_ITEMS_FOUND);
    if (find->from + find->max > 0) {
        find->boundaries = kvarve_allocate_array(find->from + find->max, sizeof *find->boundaries);
        if (find->boundaries == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "find: %zu boundaries",
                               find->from + find->max);
        }
    }
    status = ask(find, err);
    if (status == KVARVE_OK) {
        reply_found(find);
    }
    kvarve_release(find->boundaries);
    return status;
}

kvarve_status take_find(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_find *from = &request->as.find;
    kvarve_prefix *prefix = NULL;
    session_handle *space;
    kvarve_status status = handle_find(at, HANDLE_SPACE, from->space, &space, err);

    if (status == KVARVE_OK) {
        status = letter_prefix(at, &from->prefix, &prefix, err);
    }
    if (status == KVARVE_OK) {
        search find = {.at = at,
                       .id = request->id,
                       .name = space->name,
                       .query = {.prefix = prefix},
                       .options = &from->options,
                       .from = from->from,
                       .max = from->max};

        status = run(&find, err);
    }
    prefix_return(prefix);
    return status;
}

kvarve_status take_find_points(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_find_points *from = &request->as.find_points;
    kvarve_prefix_point *points = NULL;
    size_t count = 0;
    session_handle *space;
    kvarve_status status = handle_find(at, HANDLE_SPACE, from->space, &space, err);

    if (status == KVARVE_OK) {
        status = letter_points(at, from->points, &points, &count, err);
    }
    if (status == KVARVE_OK && count == 0) {
        status = kvarve_fail(err, KVARVE_INVALID, "find: 0 points, 1 .. %u", WIRE_POINTS_MAX);
    }
    if (status == KVARVE_OK) {
        search find = {.at = at,
                       .id = request->id,
                       .name = space->name,
                       .query = {.points = points, .point_count = count},
                       .options = &from->options,
                       .from = from->from,
                       .max = from->max};

        status = run(&find, err);
    }
    kvarve_release(points);
    return status;
}

/* --- find_all --- */

static kvarve_status reply_bitmap(session *at, uint64_t id, const uint8_t *bitmap, uint64_t total,
                                  uint64_t from, kvarve_error *err)
{
    wire_message reply = {.type = WIRE_FOUND_ALL, .id = id};
    kvarve_status status = KVARVE_OK;

    if (from < total) {
        reply.count = (uint32_t)kvarve_min_u64(total - from, WIRE_ITEMS_FOUND_ALL);
    }
    for (uint32_t i = 0; i < reply.count && status == KVARVE_OK; i++) {
        const wire_octet octet = {.value = bitmap[from + i]};

        status = reply_item(at, WIRE_FOUND_ALL, i, &octet, err);
    }
    if (status == KVARVE_OK) {
        reply.as.found_all.total = total;
        session_reply(at, &reply);
    }
    return status;
}

static kvarve_status find_all(session *at, const wire_message *request, store_namespace *name,
                              const kvarve_prefix *prefix, kvarve_error *err)
{
    const kvarve_find_options options = options_of(&request->as.find_all.options);
    const uint64_t total = kvarve_prefix_length(prefix) / 8 + 1;
    uint8_t *bitmap = kvarve_allocate((size_t)total);
    kvarve_status status;

    if (bitmap == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "find_all: a bitmap");
    }
    status = store_find_all(name, prefix, &options, bitmap, (size_t)total, err);
    if (status == KVARVE_OK) {
        status = reply_bitmap(at, request->id, bitmap, total, request->as.find_all.from, err);
    }
    kvarve_release(bitmap);
    return status;
}

kvarve_status take_find_all(session *at, const wire_message *request, kvarve_error *err)
{
    kvarve_prefix *prefix = NULL;
    session_handle *space;
    kvarve_status status = handle_find(at, HANDLE_SPACE, request->as.find_all.space, &space, err);

    if (status == KVARVE_OK) {
        status = letter_prefix(at, &request->as.find_all.prefix, &prefix, err);
    }
    if (status == KVARVE_OK) {
        status = find_all(at, request, space->name, prefix, err);
    }
    prefix_return(prefix);
    return status;
}
