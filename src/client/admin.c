/*
 * admin.c - administration through the client door.
 *
 * A verify or trim that runs is followed by a request that is parked at the daemon for a while.
 *
 * Threads: under the client's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "client/client_private.h"

#define FOLLOW_MS    150u
#define DOCUMENT_MAX (UINT64_C(1) << 20)
#define LISTED_MAX   (UINT64_C(1) << 24)
#define REASONS      32u

/* --- statistics --- */

static bool read_statistics(void *context, const wire_message *reply)
{
    kvarve_statistics *out = context;
    static const size_t rows[] = {
#define ROW_OFFSET(field, unit, text) offsetof(kvarve_statistics, field),
        KVARVE_STATISTIC_TABLE(ROW_OFFSET)
#undef ROW_OFFSET
    };

    for (uint32_t i = 0; i < reply->count; i++) {
        wire_number number;

        wire_item(reply, i, &number);
        if (i < REASONS) {
            out->misses[i] = number.value;
        } else if (i < 2 * REASONS) {
            out->refusals[i - REASONS] = number.value;
        } else if (i - 2 * REASONS < sizeof rows / sizeof rows[0]) {
            memcpy((uint8_t *)out + rows[i - 2 * REASONS], &number.value, sizeof number.value);
        } /* rows of a newer daemon are not known here */
    }
    return true;
}

kvarve_status client_statistics(door *at, kvarve_statistics *out, kvarve_error *err)
{
    client_exchange what = {
        .request.type = WIRE_STATISTICS, .read = read_statistics, .context = out};

    return client_ask(client_of(at), &what, err);
}

/* --- listing --- */

typedef struct listing {
    kvarve_checkpoint_info *all;
    size_t count;
    uint32_t in_part;
} listing;

static void info_of(const wire_checkpoint *from, kvarve_checkpoint_info *out)
{
    *out = (kvarve_checkpoint_info){.tokens = from->tokens,
                                    .draft_tokens = from->draft_tokens,
                                    .bytes = from->bytes,
                                    .bytes_own = from->bytes_own,
                                    .bytes_in_ram = from->bytes_in_ram,
                                    .created_s = from->created_s,
                                    .used = from->used,
                                    .kind = from->kind,
                                    .state = from->state,
                                    .pages = from->pages,
                                    .leases = from->leases,
                                    .is_damaged = from->is_damaged,
                                    .is_draft = from->is_draft};
    memcpy(out->id, from->id, sizeof out->id);
    memcpy(out->parent_id, from->parent_id, sizeof out->parent_id);
    memcpy(out->namespace_text, from->namespace_text, sizeof out->namespace_text);
}

static bool read_listed(void *context, const wire_message *reply)
{
    listing *list = context;
    kvarve_checkpoint_info *larger;

    list->in_part = reply->count;
    if (reply->count == 0) {
        return true;
    }
    if (list->count + reply->count > LISTED_MAX) {
        return false;
    }
    larger = kvarve_reallocate(list->all, (list->count + reply->count) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    list->all = larger;
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_checkpoint checkpoint;

        wire_item(reply, i, &checkpoint);
        info_of(&checkpoint, &larger[list->count++]);
    }
    return true;
}

kvarve_status client_each(door *at, store_visit visit, void *context, kvarve_error *err)
{
    listing list = {0};
    kvarve_status status;

    do {
        client_exchange what = {.request.type = WIRE_LIST, .read = read_listed, .context = &list};

        what.request.as.list.from = list.count;
        status = client_ask(client_of(at), &what, err);
    } while (status == KVARVE_OK && list.in_part > 0);
    for (size_t i = 0; i < list.count && status == KVARVE_OK; i++) {
        if (!visit(context, &list.all[i])) {
            break;
        }
    }
    kvarve_release(list.all);
    return status;
}

/* --- drop --- */

/* Its answer means that it is durable. */
kvarve_status client_drop(door *at, const uint8_t id[32], kvarve_error *err)
{
    client_exchange what = {
        .request.type = WIRE_DROP, .is_parked = true, .wait_ms = client_of(at)->io_timeout_ms};
    kvarve_status status;

    memcpy(what.request.as.drop.id, id, sizeof what.request.as.drop.id);
    status = client_ask(client_of(at), &what, err);
    if (what.is_abandoned) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "drop: the disk did not answer in time");
    }
    return status;
}

kvarve_status client_drops_are_settled(door *at, bool *out, kvarve_error *err)
{
    (void)at;
    (void)err;
    *out = true;
    return KVARVE_OK;
}

/* --- documents --- */

typedef struct text_reader {
    char *text;
    uint64_t count;
    uint64_t total;
} text_reader;

static bool read_text(void *context, const wire_message *reply)
{
    text_reader *reader = context;
    const uint64_t total = reply->as.document_is.total;

    if (total > DOCUMENT_MAX || reply->count > total - reader->count ||
        (reply->count == 0 && reader->count < total) ||
        (reader->text != NULL && total != reader->total)) {
        return false;
    }
    if (reader->text == NULL) {
        reader->text = kvarve_allocate((size_t)total + 1);
        reader->total = total;
    }
    for (uint32_t i = 0; i < reply->count && reader->text != NULL; i++) {
        wire_octet octet;

        wire_item(reply, i, &octet);
        reader->text[reader->count++] = (char)octet.value;
    }
    return reader->text != NULL;
}

const char *client_document(door *base, const char *namespace_text)
{
    client *at = client_of(base);
    text_reader reader = {0};
    kvarve_status status;

    do {
        client_exchange what = {
            .request.type = WIRE_DOCUMENT, .read = read_text, .context = &reader};

        wire_text_set(what.request.as.document.namespace_text,
                      sizeof what.request.as.document.namespace_text, namespace_text);
        what.request.as.document.from = reader.count;
        status = client_ask(at, &what, NULL);
    } while (status == KVARVE_OK && reader.count < reader.total);
    if (status != KVARVE_OK) {
        kvarve_release(reader.text);
        return NULL;
    }
    kvarve_release(at->document);
    at->document = reader.text;
    return at->document;
}

/* --- verify --- */

static void result_of(const wire_verify_result *from, kvarve_verify_result *out)
{
    *out = (kvarve_verify_result){.pages_checked = from->pages_checked,
                                  .pages_total = from->pages_total,
                                  .bytes_checked = from->bytes_checked,
                                  .pages_damaged = from->pages_damaged,
                                  .checkpoints_lost = from->checkpoints_lost,
                                  .is_index_damaged = from->is_index_damaged};
}

static bool take_verified(client *at, client_pending *pending, const wire_message *answer)
{
    (void)pending;
    at->is_verify_out = false;
    if (answer != NULL && answer->type == WIRE_VERIFIED) {
        at->verified = answer->as.verified;
    } else {
        at->verified.is_over = 1; /* it can not be followed any more */
    }
    client_changed(at);
    return true;
}

static void park_verify(client *at, client_watch *watch)
{
    wire_message request = {.type = WIRE_VERIFY, .as.verify = {.timeout_ms = FOLLOW_MS}};

    (void)watch;
    if (at->is_verify_out || at->verified.is_over != 0) {
        return;
    }
    at->verify_pending.take = take_verified;
    at->is_verify_out = client_send(at, &at->verify_pending, &request, NULL) == KVARVE_OK;
}

kvarve_status client_verify_begin(door *base, kvarve_error *err)
{
    client *at = client_of(base);
    client_exchange what = {.request = {.type = WIRE_VERIFY, .as.verify.is_begin = 1}};
    const kvarve_status status = client_ask(at, &what, err);

    if (status == KVARVE_OK) {
        at->verified = what.reply.as.verified;
    }
    return status;
}

/* What is parked should have been answered by now: ask. */
static void ask_verify(client *at)
{
    client_exchange what = {.request.type = WIRE_VERIFY};

    if (client_ask(at, &what, NULL) == KVARVE_OK) {
        at->verified = what.reply.as.verified;
    }
}

bool client_verify_progress(door *base, kvarve_verify_result *out)
{
    client *at = client_of(base);

    if (at->verified.is_over == 0 && at->is_verify_out && !client_has_waited()) {
        ask_verify(at);
    }
    result_of(&at->verified.result, out);
    if (at->verified.is_over != 0 || at->is_broken) {
        return true;
    }
    client_watch_add(at, &at->verify_watch);
    return false;
}

/* --- trim --- */

static bool take_trimmed(client *at, client_pending *pending, const wire_message *answer)
{
    (void)pending;
    at->is_trim_out = false;
    if (answer != NULL && answer->type == WIRE_TRIMMED) {
        at->trimmed = answer->as.trimmed;
    } else {
        at->trimmed = (wire_trimmed){.is_over = 1, .status = KVARVE_UNAVAILABLE};
    }
    client_changed(at);
    return true;
}

static void park_trim(client *at, client_watch *watch)
{
    wire_message request = {.type = WIRE_TRIM, .as.trim = {.timeout_ms = FOLLOW_MS}};

    (void)watch;
    if (at->is_trim_out) {
        return;
    }
    at->trim_pending.take = take_trimmed;
    at->is_trim_out = client_send(at, &at->trim_pending, &request, NULL) == KVARVE_OK;
}

kvarve_status client_trim_begin(door *base, kvarve_error *err)
{
    client *at = client_of(base);
    client_exchange what = {.request = {.type = WIRE_TRIM, .as.trim.is_begin = 1}};
    const kvarve_status status = client_ask(at, &what, err);

    if (status == KVARVE_OK) {
        at->trimmed = what.reply.as.trimmed;
    } else if (status == KVARVE_BUSY) {
        client_watch_add(at, &at->trim_watch); /* the one that runs is waited for */
    }
    return status;
}

static void ask_trim(client *at)
{
    client_exchange what = {.request.type = WIRE_TRIM};

    if (client_ask(at, &what, NULL) == KVARVE_OK) {
        at->trimmed = what.reply.as.trimmed;
    }
}

bool client_trim_progress(door *base, uint64_t *out_bytes, kvarve_status *out_status)
{
    client *at = client_of(base);

    if (at->trimmed.is_over == 0 && at->is_trim_out && !client_has_waited()) {
        ask_trim(at);
    }
    *out_bytes = at->trimmed.bytes;
    *out_status = at->is_broken ? KVARVE_UNAVAILABLE : (kvarve_status)at->trimmed.status;
    if (at->trimmed.is_over != 0 || at->is_broken) {
        return true;
    }
    client_watch_add(at, &at->trim_watch);
    return false;
}

void client_admin_init(client *at)
{
    at->verify_watch.park = park_verify;
    at->trim_watch.park = park_trim;
    kvarve_list_init(&at->verify_watch.link);
    kvarve_list_init(&at->trim_watch.link);
}
