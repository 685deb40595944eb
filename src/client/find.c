/*
 * find.c - find through the client door.
 *
 * Threads: under the client's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client_private.h"

/* One find: its answers come in parts. */
typedef struct search {
    client *at;
    const store_query *query;
    const kvarve_find_options *options;
    wire_message request;
    client_letter_image *image;
    wire_letter points;
    kvarve_boundary *out;
    size_t max;
    size_t count;
    bool is_last; /* the part had less than was asked for */
} search;

static wire_find_options options_of(const kvarve_find_options *from)
{
    return (wire_find_options){.min_tokens = from->min_tokens,
                               .max_tokens = from->max_tokens,
                               .multiple_of = from->multiple_of,
                               .cookie = from->cookie,
                               .kinds = from->kinds,
                               .preferred_kind = from->preferred_kind,
                               .lease = from->lease,
                               .flags = from->flags,
                               .timeout_ms = from->timeout_ms};
}

static kvarve_status put_points(search *find, kvarve_error *err)
{
    client_letter *letter = &find->at->letter;
    const size_t count = find->query->point_count;
    kvarve_status status =
        client_letter_take(letter, count * WIRE_RECORD_SIZE_POINT, &find->points, err);

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        wire_point point = {.tokens = find->query->points[i].tokens};

        memcpy(point.digest, find->query->points[i].digest, sizeof point.digest);
        status = wire_record_encode(
            WIRE_RECORD_POINT, &point,
            client_letter_bytes(letter, find->points) + i * WIRE_RECORD_SIZE_POINT, err);
    }
    return status;
}

/* What is asked, but from where on. */
static kvarve_status make_request(search *find, const client_namespace *space, kvarve_error *err)
{
    wire_message *request = &find->request;

    if (find->query->prefix == NULL) {
        request->type = WIRE_FIND_POINTS;
        request->as.find_points =
            (wire_find_points){.space = space->id, .options = options_of(find->options)};
        if (put_points(find, err) != KVARVE_OK) {
            return KVARVE_NO_MEMORY;
        }
        request->as.find_points.points = find->points;
        return KVARVE_OK;
    }
    request->type = WIRE_FIND;
    request->as.find = (wire_find){.space = space->id, .options = options_of(find->options)};
    return client_letter_prefix(&find->at->letter, find->query->prefix, &request->as.find.prefix,
                                &find->image, err);
}

/* The next part: as many as are left; a lease is asked for once. */
static void set_part(search *find, uint32_t lease)
{
    const uint32_t from = (uint32_t)find->count;
    const uint32_t max = (uint32_t)kvarve_min_u64(find->max - find->count, WIRE_ANSWERS_MAX - from);

    if (find->request.type == WIRE_FIND) {
        find->request.as.find.from = from;
        find->request.as.find.max = max;
        find->request.as.find.options.lease = lease;
    } else {
        find->request.as.find_points.from = from;
        find->request.as.find_points.max = max;
        find->request.as.find_points.options.lease = lease;
    }
}

static bool read_found(void *context, const wire_message *reply)
{
    search *find = context;
    const size_t room = find->max - find->count;

    if (reply->count > room) {
        return false;
    }
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_boundary boundary;

        wire_item(reply, i, &boundary);
        client_boundary_of(&boundary, &find->out[find->count++]);
    }
    find->is_last =
        reply->count == 0 || find->count >= find->max || find->count >= WIRE_ANSWERS_MAX;
    return true;
}

/* Reports of damaged pages go before: what they say changes what is found. */
static void await_reports(client *at)
{
    while (at->reports > 0 && !at->is_broken) {
        client_exchange what = {.request.type = WIRE_STATUS};

        if (client_ask(at, &what, NULL) != KVARVE_OK) {
            return; /* answered in order: the reports' pins came before */
        }
    }
}

static kvarve_status run_search(search *find, wire_found *out, kvarve_error *err)
{
    uint32_t lease = find->options->lease;
    kvarve_status status = KVARVE_OK;

    while (status == KVARVE_OK && !find->is_last) {
        client_exchange what = {.read = read_found, .context = find};

        set_part(find, lease);
        what.request = find->request;
        status = client_ask(find->at, &what, err);
        if (status != KVARVE_OK) {
            break;
        }
        if (find->count <= WIRE_ITEMS_FOUND && out->lease == 0) {
            *out = what.reply.as.found; /* of the first part */
        }
        lease = KVARVE_LEASE_NONE;
        if (what.reply.as.found.miss.reason != KVARVE_MISS_NOT) {
            find->is_last = true;
        }
    }
    return status;
}

/* Give the answer to the caller. */
static kvarve_status answer(const search *find, const wire_found *found, const store_answer *out)
{
    if (out->count != NULL) {
        *out->count = find->count;
    }
    if (found->miss.reason != KVARVE_MISS_NOT && find->count == 0) {
        if (out->miss != NULL) {
            client_miss_of(&found->miss, out->miss);
        }
        return KVARVE_MISS;
    }
    return KVARVE_OK;
}

static kvarve_status search_for(search *find, client_namespace *space, const store_answer *out,
                                client_lease *lease, kvarve_error *err)
{
    wire_found found = {0};
    kvarve_status status = make_request(find, space, err);

    if (status == KVARVE_OK) {
        status = run_search(find, &found, err);
    }
    client_letter_done(find->image);
    client_letter_give(&find->at->letter, find->points);
    status = status == KVARVE_OK ? answer(find, &found, out) : status;
    if (status == KVARVE_OK && lease != NULL && found.lease == 0) {
        client_break(find->at, "the daemon found something and leased nothing");
        return client_gone(find->at, err);
    }
    if (status == KVARVE_OK && lease != NULL) {
        client_lease_begin(lease, &found, find->options->lease);
    }
    return status;
}

kvarve_status client_find(door_namespace *name, const store_query *query,
                          const kvarve_find_options *options, const store_answer *out,
                          door_lease **out_lease, kvarve_error *err)
{
    client_namespace *space = client_namespace_of(name);
    search find = {.at = space->at,
                   .query = query,
                   .options = options,
                   .out = out->boundaries,
                   .max = out->boundaries == NULL ? 0 : out->max};
    const bool wants_lease = out_lease != NULL && options->lease != KVARVE_LEASE_NONE;
    client_lease *lease = wants_lease ? client_lease_make(space) : NULL;
    kvarve_status status;

    if (wants_lease && lease == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "find: a lease");
    }
    await_reports(space->at);
    status = search_for(&find, space, out, lease, err);
    if (status != KVARVE_OK && lease != NULL) {
        client_lease_drop(lease);
    } else if (lease != NULL) {
        *out_lease = (door_lease *)(void *)lease;
    }
    return status;
}

/* --- all lengths --- */

typedef struct bitmap_reader {
    uint8_t *bitmap;
    uint64_t wanted; /* bytes of the whole */
    uint64_t count;
} bitmap_reader;

static bool read_bitmap(void *context, const wire_message *reply)
{
    bitmap_reader *reader = context;

    if (reply->as.found_all.total != reader->wanted || reply->count == 0 ||
        reply->count > reader->wanted - reader->count) {
        return false;
    }
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_octet octet;

        wire_item(reply, i, &octet);
        reader->bitmap[reader->count++] = octet.value;
    }
    return true;
}

kvarve_status client_find_all(door_namespace *name, const kvarve_prefix *prefix,
                              const kvarve_find_options *options, uint8_t *bitmap,
                              size_t bitmap_bytes, kvarve_error *err)
{
    const client_namespace *space = client_namespace_of(name);
    client *at = space->at;
    bitmap_reader reader = {.bitmap = bitmap, .wanted = kvarve_prefix_length(prefix) / 8 + 1};
    wire_message request = {.type = WIRE_FIND_ALL};
    client_letter_image *image = NULL;
    kvarve_status status;

    if (bitmap_bytes < reader.wanted) {
        return kvarve_fail(err, KVARVE_INVALID, "find_all: a bitmap of %zu bytes, %llu are needed",
                           bitmap_bytes, (unsigned long long)reader.wanted);
    }
    await_reports(at);
    request.as.find_all = (wire_find_all){.space = space->id, .options = options_of(options)};
    status = client_letter_prefix(&at->letter, prefix, &request.as.find_all.prefix, &image, err);
    if (status != KVARVE_OK) {
        return status;
    }
    while (status == KVARVE_OK && reader.count < reader.wanted) {
        client_exchange what = {.request = request, .read = read_bitmap, .context = &reader};

        what.request.as.find_all.from = reader.count;
        status = client_ask(at, &what, err);
    }
    client_letter_done(image);
    if (status == KVARVE_OK) {
        memset(bitmap + reader.wanted, 0, bitmap_bytes - (size_t)reader.wanted);
    }
    return status;
}
