/*
 * wire_schema.h - every message between a daemon and its clients, once: the table that structs,
 * codec, limits, names and docs/format/wire.md come from.
 *
 * A field is FIELD(kind, name, a, b, sentence). What a and b are depends on the kind:
 *
 *   U8 U16 U32 U64 I64   the least and the largest value that is accepted
 *   BYTES                how many, 0
 *   TEXT                 bytes, at least one NUL at the end included; the shortest length
 *   LETTER               a range of the letter: its size is a multiple of a and at most b
 *   RECORD               a record of the record table, its fields in place: NAME, name
 *
 * Fields lie back to back in this order, little endian, without padding. A record's fields are
 * neither records nor counted.
 *
 * Append only: a number or a layout that was released once stays what it was. A message that needs
 * another layout gets a new number; ERROR, HELLO and WELCOME stay as they are in every version.
 */
#ifndef KVARVE_PROTOCOL_WIRE_SCHEMA_H
#define KVARVE_PROTOCOL_WIRE_SCHEMA_H

#include <stdint.h>

#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "kvarve/layout.h"
#include "kvarve/prefix.h"
#include "kvarve/store.h"

#define WIRE_VERSION        1u                           /* spoken here */
#define WIRE_VERSION_OLDEST 1u                           /* understood here */
#define WIRE_MAGIC          UINT64_C(0x0a3165726977766b) /* "kvwire1\n" */

#define WIRE_MESSAGE_MAX  65536u /* bytes, head included */
#define WIRE_HEAD_SIZE    16u
#define WIRE_LETTER_MAX   (UINT64_C(1) << 32) /* bytes of a letter */
#define WIRE_LETTER_ALIGN 8u                  /* what lies in it begins at a multiple */
#define WIRE_TOKEN_SIZE   4u                  /* a token in the letter */
#define WIRE_STEP_SIZE    32u                 /* a saved step of the token chain in the letter */
#define WIRE_STEP_TOKENS  256u                /* tokens a step */

#define WIRE_TOKENS_MAX       KVARVE_PREFIX_TOKENS_MAX
#define WIRE_RANK_MAX         (KVARVE_RANKS_MAX - 1)
#define WIRE_GROUP_MAX        (KVARVE_GROUPS_MAX - 1)
#define WIRE_POINTS_MAX       65536u
#define WIRE_TOKENS_BYTES_MAX (WIRE_TOKENS_MAX * WIRE_TOKEN_SIZE)
#define WIRE_STEPS_BYTES_MAX  ((WIRE_TOKENS_MAX / WIRE_STEP_TOKENS + 1) * WIRE_STEP_SIZE)
#define WIRE_SIZES_BYTES_MAX  (KVARVE_RANKS_MAX * KVARVE_GROUPS_MAX * 8)
#define WIRE_POINTS_BYTES_MAX (WIRE_POINTS_MAX * 40)
#define WIRE_ANSWERS_MAX      65536u /* boundaries of one find, all parts together */

/* Which of a put or a lease a message means. */
typedef enum wire_handle_kind {
    WIRE_HANDLE_PUT = 1,
    WIRE_HANDLE_LEASE = 2,
} wire_handle_kind;

/* --- records: what several messages have, what arrays and the letter are made of --- */

/* RECORD(NAME, name, sentence) */
#define WIRE_RECORD_TABLE(RECORD)                                                                  \
    RECORD(PREFIX, prefix, "The image of a kvarve_prefix, in the letter.")                         \
    RECORD(PUT_OPTIONS, put_options, "kvarve_put_options; its arrays lie in the letter.")          \
    RECORD(PUT_STATUS, put_status, "Where a put stands.")                                          \
    RECORD(FIND_OPTIONS, find_options, "kvarve_find_options.")                                     \
    RECORD(BOUNDARY, boundary, "kvarve_boundary.")                                                 \
    RECORD(MISS, miss, "kvarve_miss.")                                                             \
    RECORD(VERIFY_RESULT, verify_result, "kvarve_verify_result.")                                  \
    RECORD(GROUP, group, "kvarve_group.")                                                          \
    RECORD(PLAN_ENTRY, plan_entry, "kvarve_page_plan, and the digest that is expected.")           \
    RECORD(PAGE_ENTRY, page_entry, "A page that can be read in the arena.")                        \
    RECORD(CHECKPOINT, checkpoint, "kvarve_checkpoint_info.")                                      \
    RECORD(PAGE_DIGEST, page_digest, "kvarve_page_digest, also in the letter.")                    \
    RECORD(POINT, point, "kvarve_prefix_point, in the letter.")                                    \
    RECORD(NUMBER, number, "A number, also in the letter.")                                        \
    RECORD(OCTET, octet, "A byte.")

#define WIRE_FIELDS_PREFIX(FIELD)                                                                  \
    FIELD(LETTER, tokens, WIRE_TOKEN_SIZE, WIRE_TOKENS_BYTES_MAX, "Its tokens, u32.")              \
    FIELD(LETTER, steps, WIRE_STEP_SIZE, WIRE_STEPS_BYTES_MAX,                                     \
          "Hash steps: one, and one for each 256 whole tokens.")

#define WIRE_FIELDS_PUT_OPTIONS(FIELD)                                                             \
    FIELD(U64, tokens, 0, WIRE_TOKENS_MAX, "The boundary. 0: an open put.")                        \
    FIELD(U64, draft_tokens, 0, WIRE_TOKENS_MAX, "Leading tokens the drafter's state is for.")     \
    FIELD(U64, cookie, 0, UINT64_MAX, "For events. 0: none are wanted.")                           \
    FIELD(U32, kind, 0, KVARVE_KIND_RESPONSE, "kvarve_kind.")                                      \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Until durable. 0: the store's.")                        \
    FIELD(U32, flags, 0, 3, "KVARVE_PUT_...")                                                      \
    FIELD(LETTER, digests, 32, WIRE_LETTER_MAX, "page_digest records.")                            \
    FIELD(LETTER, sizes, 8, WIRE_SIZES_BYTES_MAX,                                                  \
          "Numbers: bytes of VARIABLE groups, [rank * groups + group].")

#define WIRE_FIELDS_PUT_STATUS(FIELD)                                                              \
    FIELD(U32, state, 0, KVARVE_PUT_PRESENT, "kvarve_put_state.")                                  \
    FIELD(U32, refusal, 0, KVARVE_REFUSED_CLOSED, "kvarve_refusal.")                               \
    FIELD(U8, is_settling, 0, 1, "1: an open put that can not be extended or closed now.")         \
    FIELD(U8, has_id, 0, 1, "1: the id is known.")                                                 \
    FIELD(BYTES, id, 32, 0, "Of the checkpoint; else zeros.")

#define WIRE_FIELDS_FIND_OPTIONS(FIELD)                                                            \
    FIELD(U64, min_tokens, 0, UINT64_MAX, "Shortest boundary. 0: 1.")                              \
    FIELD(U64, max_tokens, 0, UINT64_MAX, "Longest. 0: the prefix's length.")                      \
    FIELD(U64, multiple_of, 0, UINT64_MAX, "0: any.")                                              \
    FIELD(U64, cookie, 0, UINT64_MAX, "Of the lease's events. 0: none are wanted.")                \
    FIELD(U32, kinds, 0, 7, "Bit 1 << kvarve_kind. 0: all.")                                       \
    FIELD(U32, preferred_kind, 0, UINT32_MAX, "This kind first at one length.")                    \
    FIELD(U32, lease, 0, KVARVE_LEASE_LOAD, "kvarve_lease_mode.")                                  \
    FIELD(U32, flags, 0, 3, "KVARVE_FIND_...")                                                     \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Of the load. 0: the store's.")

#define WIRE_FIELDS_BOUNDARY(FIELD)                                                                \
    FIELD(U64, tokens, 0, WIRE_TOKENS_MAX, "Its length. 0: there is none.")                        \
    FIELD(U64, bytes, 0, UINT64_MAX, "Of all its pages.")                                          \
    FIELD(U64, bytes_to_read, 0, UINT64_MAX, "Of those not in RAM.")                               \
    FIELD(U64, expected_ns, 0, UINT64_MAX, "Time to load.")                                        \
    FIELD(U64, draft_tokens, 0, WIRE_TOKENS_MAX, "Leading tokens the drafter's state is for.")     \
    FIELD(U32, kind, 0, KVARVE_KIND_RESPONSE, "kvarve_kind.")                                      \
    FIELD(U32, tier, 0, KVARVE_TIER_FLASH, "kvarve_tier.")                                         \
    FIELD(U32, state, 0, KVARVE_PUT_PRESENT, "kvarve_put_state.")                                  \
    FIELD(U32, flags, 0, 3, "KVARVE_BOUNDARY_...")                                                 \
    FIELD(BYTES, id, 32, 0, "Of the checkpoint; zeros for a derived boundary.")

#define WIRE_FIELDS_MISS(FIELD)                                                                    \
    FIELD(U32, reason, 0, KVARVE_MISS_CLOSED, "kvarve_miss_reason. 0: no miss.")                   \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Where a page is meant.")                                 \
    FIELD(U64, common_tokens, 0, UINT64_MAX, "Longest common prefix known.")                       \
    FIELD(U64, nearest_tokens, 0, UINT64_MAX, "The longest that would have served.")               \
    FIELD(TEXT, field, 64, 0, "The first member of the identity that differs.")

#define WIRE_FIELDS_VERIFY_RESULT(FIELD)                                                           \
    FIELD(U64, pages_checked, 0, UINT64_MAX, "So far.")                                            \
    FIELD(U64, pages_total, 0, UINT64_MAX, "That there are.")                                      \
    FIELD(U64, bytes_checked, 0, UINT64_MAX, "So far.")                                            \
    FIELD(U64, pages_damaged, 0, UINT64_MAX, "Found now.")                                         \
    FIELD(U64, checkpoints_lost, 0, UINT64_MAX, "Not found any more until repaired.")              \
    FIELD(U8, is_index_damaged, 0, 1, "1: the index is.")

#define WIRE_FIELDS_GROUP(FIELD)                                                                   \
    FIELD(U32, page_class, 0, KVARVE_CLASS_AUXILIARY, "kvarve_class.")                             \
    FIELD(U32, flags, 0, 31, "KVARVE_GROUP_...")                                                   \
    FIELD(U32, span_tokens, 0, KVARVE_SPAN_MAX, "Tokens a page.")                                  \
    FIELD(U32, window_tokens, 0, UINT32_MAX, "W of a window group.")                               \
    FIELD(U32, page_bytes, 1, KVARVE_PAGE_BYTES_MAX, "Bytes a full page, of one rank.")

#define WIRE_FIELDS_PLAN_ENTRY(FIELD)                                                              \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Its group.")                                             \
    FIELD(U32, action, 0, KVARVE_PAGE_WAIT, "kvarve_page_action.")                                 \
    FIELD(U64, position, 0, UINT64_MAX, "Page index, or part.")                                    \
    FIELD(U64, first_token, 0, UINT64_MAX, "Of prefix and window pages.")                          \
    FIELD(U64, offset, 0, UINT64_MAX, "COPY: where in the arena to write it; else 0.")             \
    FIELD(U32, tokens, 0, UINT32_MAX, "Of prefix and window pages.")                               \
    FIELD(U32, size, 0, KVARVE_PAGE_BYTES_MAX, "Bytes to fill.")                                   \
    FIELD(U8, has_expected, 0, 1, "1: it was announced with this digest.")                         \
    FIELD(BYTES, expected, 16, 0, "The digest; else zeros.")

#define WIRE_FIELDS_PAGE_ENTRY(FIELD)                                                              \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Its group.")                                             \
    FIELD(U32, tokens, 0, UINT32_MAX, "Of prefix and window pages.")                               \
    FIELD(U64, position, 0, UINT64_MAX, "Page index, or part.")                                    \
    FIELD(U64, first_token, 0, UINT64_MAX, "Of prefix and window pages.")                          \
    FIELD(U64, offset, 0, UINT64_MAX, "Where in the arena it is.")                                 \
    FIELD(U32, size, 1, KVARVE_PAGE_BYTES_MAX, "Its bytes.")                                       \
    FIELD(U8, is_verified, 0, 1, "1: checked since they came into the arena.")                     \
    FIELD(BYTES, digest, 16, 0, "What the bytes must have.")

#define WIRE_FIELDS_CHECKPOINT(FIELD)                                                              \
    FIELD(BYTES, id, 32, 0, "Its id.")                                                             \
    FIELD(BYTES, parent_id, 32, 0, "The one it grew from; zeros: none known.")                     \
    FIELD(TEXT, namespace_text, 96, 0, "Of its namespace.")                                        \
    FIELD(U64, tokens, 0, WIRE_TOKENS_MAX, "The boundary.")                                        \
    FIELD(U64, draft_tokens, 0, WIRE_TOKENS_MAX, "Leading tokens the drafter's state is for.")     \
    FIELD(U64, bytes, 0, UINT64_MAX, "Of all its pages.")                                          \
    FIELD(U64, bytes_own, 0, UINT64_MAX, "Of pages that no other one names.")                      \
    FIELD(U64, bytes_in_ram, 0, UINT64_MAX, "Of pages in the arena.")                              \
    FIELD(I64, created_s, INT64_MIN, INT64_MAX, "Wall clock.")                                     \
    FIELD(U64, used, 0, UINT64_MAX, "Rank in recency: larger is later.")                           \
    FIELD(U32, kind, 0, KVARVE_KIND_RESPONSE, "kvarve_kind.")                                      \
    FIELD(U32, state, 0, KVARVE_PUT_PRESENT, "kvarve_put_state.")                                  \
    FIELD(U32, pages, 0, UINT32_MAX, "How many.")                                                  \
    FIELD(U32, leases, 0, UINT32_MAX, "Held now.")                                                 \
    FIELD(U8, is_damaged, 0, 1, "1: not found until a put repairs it.")                            \
    FIELD(U8, is_draft, 0, 1, "1: the draft half of another one.")

#define WIRE_FIELDS_PAGE_DIGEST(FIELD)                                                             \
    FIELD(U32, rank, 0, UINT32_MAX, "KVARVE_RANK_ALL for replicated groups.")                      \
    FIELD(U32, group, 0, UINT32_MAX, "Its group.")                                                 \
    FIELD(U64, position, 0, UINT64_MAX, "Page index, or part.")                                    \
    FIELD(BYTES, digest, 16, 0, "Of its bytes.")

#define WIRE_FIELDS_POINT(FIELD)                                                                   \
    FIELD(U64, tokens, 0, UINT64_MAX, "A length.")                                                 \
    FIELD(BYTES, digest, 32, 0, "The token digest there.")

#define WIRE_FIELDS_NUMBER(FIELD) FIELD(U64, value, 0, UINT64_MAX, "It.")

#define WIRE_FIELDS_OCTET(FIELD) FIELD(U8, value, 0, UINT8_MAX, "It.")

/* --- messages --- */

/*
 * MESSAGE(number, NAME, name, role, answer, ITEM, least, most, sentence): role is REQUEST, REPLY or
 * EVENT; answer is the reply to a request (NONE otherwise), besides ERROR, which answers any. ITEM
 * is the record that follows the fields, `least` to `most` times; NONE, 0, 0: it has fields only.
 * EMPTY is the same for a message without fields.
 */
#define WIRE_MESSAGE_TABLE(MESSAGE, EMPTY)                                                         \
    MESSAGE(1, ERROR, error, REPLY, NONE, NONE, 0, 0,                                              \
            "The request was not done. Id 0: the connection ends.")                                \
    EMPTY(2, DONE, done, REPLY, NONE, NONE, 0, 0,                                                  \
          "The request was done; there is no more to say.")                                        \
    MESSAGE(3, EVENT, event, EVENT, NONE, NONE, 0, 0, "kvarve_event.")                             \
    MESSAGE(4, HELLO, hello, REQUEST, WELCOME, NONE, 0, 0,                                         \
            "The first message; the letter's descriptor comes with it.")                           \
    MESSAGE(5, WELCOME, welcome, REPLY, NONE, NONE, 0, 0,                                          \
            "Taken; the arena's descriptor comes with it.")                                        \
    MESSAGE(6, NAMESPACE_OPEN, namespace_open, REQUEST, NAMESPACE_OPENED, GROUP, 1,                \
            KVARVE_GROUPS_MAX, "kvarve_namespace_options. Documents without a NUL.")               \
    MESSAGE(7, NAMESPACE_OPENED, namespace_opened, REPLY, NONE, NONE, 0, 0, "A namespace.")        \
    MESSAGE(8, NAMESPACE_RELEASE, namespace_release, REQUEST, DONE, NONE, 0, 0,                    \
            "Done with it; its puts and leases keep it.")                                          \
    MESSAGE(9, PUT_BEGIN, put_begin, REQUEST, PUT_BEGUN, NONE, 0, 0, "kvarve_put_begin.")          \
    MESSAGE(10, PUT_BEGUN, put_begun, REPLY, NONE, NONE, 0, 0, "A put.")                           \
    MESSAGE(11, PUT_WAIT, put_wait, REQUEST, PUT_STATE, NONE, 0, 0,                                \
            "Say when it is `state` or over; parked.")                                             \
    MESSAGE(12, PUT_STATE, put_state, REPLY, NONE, NONE, 0, 0, "Where the put stands.")            \
    MESSAGE(13, PUT_PLAN, put_plan, REQUEST, PUT_PLANNED, NONE, 0, 0,                              \
            "kvarve_put_plan, in parts. COPY pages are pinned until the rank acks or fails.")      \
    MESSAGE(14, PUT_PLANNED, put_planned, REPLY, NONE, PLAN_ENTRY, 0, UINT32_MAX,                  \
            "Entries from the one that was asked for on.")                                         \
    MESSAGE(15, PUT_FIRST_TOKENS, put_first_tokens, REQUEST, PUT_FIRST_TOKENS_ARE, NONE, 0, 0,     \
            "Where the listed pages of each group begin, whichever rank copies them.")             \
    EMPTY(16, PUT_FIRST_TOKENS_ARE, put_first_tokens_are, REPLY, NONE, NUMBER, 0,                  \
          KVARVE_GROUPS_MAX, "By group; all bits set: none of it.")                                \
    MESSAGE(17, PUT_ACK, put_ack, REQUEST, PUT_STATE, NONE, 0, 0,                                  \
            "The rank has filled its COPY pages.")                                                 \
    MESSAGE(18, PUT_FAIL, put_fail, REQUEST, PUT_STATE, NONE, 0, 0, "The rank can not deliver.")   \
    MESSAGE(19, PUT_EXTEND, put_extend, REQUEST, PUT_STATE, NONE, 0, 0, "kvarve_put_extend.")      \
    MESSAGE(20, PUT_CLOSE, put_close, REQUEST, PUT_STATE, NONE, 0, 0, "kvarve_put_close.")         \
    MESSAGE(21, PUT_ABORT, put_abort, REQUEST, PUT_STATE, NONE, 0, 0, "Give up.")                  \
    MESSAGE(22, PUT_RELEASE, put_release, REQUEST, DONE, NONE, 0, 0,                               \
            "End the handle; the client writes none of its pages any more.")                       \
    MESSAGE(23, FIND, find, REQUEST, FOUND, NONE, 0, 0, "kvarve_find.")                            \
    MESSAGE(24, FIND_POINTS, find_points, REQUEST, FOUND, NONE, 0, 0, "kvarve_find_points.")       \
    MESSAGE(25, FOUND, found, REPLY, NONE, BOUNDARY, 0, UINT32_MAX,                                \
            "Boundaries, longest first, from the one that was asked for on; none: a miss.")        \
    MESSAGE(26, FIND_ALL, find_all, REQUEST, FOUND_ALL, NONE, 0, 0, "kvarve_find_all, in parts.")  \
    MESSAGE(27, FOUND_ALL, found_all, REPLY, NONE, OCTET, 0, UINT32_MAX,                           \
            "Bytes of the bitmap from the one that was asked for on.")                             \
    MESSAGE(28, LEASE_LOAD, lease_load, REQUEST, LEASE_STATE, NONE, 0, 0, "kvarve_lease_load.")    \
    MESSAGE(29, LEASE_WAIT, lease_wait, REQUEST, LEASE_STATE, NONE, 0, 0,                          \
            "Say when the load is over; parked.")                                                  \
    MESSAGE(30, LEASE_STATE, lease_state, REPLY, NONE, NONE, 0, 0, "Where the lease stands.")      \
    MESSAGE(31, LEASE_EXTENT, lease_extent, REQUEST, LEASE_EXTENT_IS, NONE, 0, 0,                  \
            "kvarve_lease_extent.")                                                                \
    MESSAGE(32, LEASE_EXTENT_IS, lease_extent_is, REPLY, NONE, NONE, 0, 0, "What it is.")          \
    MESSAGE(33, LEASE_PAGES, lease_pages, REQUEST, LEASE_PAGES_ARE, NONE, 0, 0,                    \
            "A rank's pages of a loaded lease, in parts; the lease pins them.")                    \
    MESSAGE(34, LEASE_PAGES_ARE, lease_pages_are, REPLY, NONE, PAGE_ENTRY, 0, UINT32_MAX,          \
            "Entries from the one that was asked for on.")                                         \
    MESSAGE(35, PAGE_BEGIN, page_begin, REQUEST, PAGE_BEGUN, NONE, 0, 0,                           \
            "Pin one page, read from flash if need be; parked.")                                   \
    MESSAGE(36, PAGE_BEGUN, page_begun, REPLY, NONE, NONE, 0, 0, "The page, pinned.")              \
    MESSAGE(37, PAGE_END, page_end, REQUEST, DONE, NONE, 0, 0, "Done with a pinned page.")         \
    MESSAGE(38, READ_AHEAD, read_ahead, REQUEST, DONE, NONE, 0, 0,                                 \
            "These pages will be wanted: a hint.")                                                 \
    MESSAGE(39, LEASE_RELEASE, lease_release, REQUEST, DONE, NONE, 0, 0,                           \
            "End the lease; the client reads none of its pages any more.")                         \
    MESSAGE(40, EXPORT, export, REQUEST, EXPORTED, NONE, 0, 0,                                     \
            "Name a put or lease for another process of the same engine.")                         \
    MESSAGE(41, EXPORTED, exported, REPLY, NONE, NONE, 0, 0, "Its name.")                          \
    MESSAGE(42, ATTACH, attach, REQUEST, ATTACHED, NONE, 0, 0,                                     \
            "Be `rank` of a put or lease that another process began.")                             \
    MESSAGE(43, ATTACHED, attached, REPLY, NONE, NONE, 0, 0, "A handle of one's own on it.")       \
    MESSAGE(44, FENCE, fence, REQUEST, DONE, NONE, 0, 0,                                           \
            "Say when nothing reads these blocks any more; parked.")                               \
    EMPTY(45, STATISTICS, statistics, REQUEST, STATISTICS_ARE, NONE, 0, 0,                         \
          "kvarve_statistics_get.")                                                                \
    EMPTY(46, STATISTICS_ARE, statistics_are, REPLY, NONE, NUMBER, 64, 1024,                       \
          "misses[32], refusals[32], then the rows of KVARVE_STATISTIC_TABLE.")                    \
    MESSAGE(47, LIST, list, REQUEST, LISTED, NONE, 0, 0,                                           \
            "Checkpoints, most recently used first, in parts.")                                    \
    MESSAGE(48, LISTED, listed, REPLY, NONE, CHECKPOINT, 0, UINT32_MAX,                            \
            "Checkpoints from the one that was asked for on.")                                     \
    MESSAGE(49, DROP, drop, REQUEST, DONE, NONE, 0, 0, "kvarve_drop; parked until durable.")       \
    MESSAGE(50, VERIFY, verify, REQUEST, VERIFIED, NONE, 0, 0,                                     \
            "Begin to verify, or follow it; parked until it is over or the time is.")              \
    MESSAGE(51, VERIFIED, verified, REPLY, NONE, NONE, 0, 0, "How far it is.")                     \
    MESSAGE(52, TRIM, trim, REQUEST, TRIMMED, NONE, 0, 0,                                          \
            "Begin to trim, or follow it; parked until it is over or the time is.")                \
    MESSAGE(53, TRIMMED, trimmed, REPLY, NONE, NONE, 0, 0, "How far it is.")                       \
    MESSAGE(54, DOCUMENT, document, REQUEST, DOCUMENT_IS, NONE, 0, 0,                              \
            "kvarve_namespace_document, in parts.")                                                \
    MESSAGE(55, DOCUMENT_IS, document_is, REPLY, NONE, OCTET, 0, UINT32_MAX,                       \
            "Its bytes from the one that was asked for on, without a NUL.")                        \
    EMPTY(56, STATUS, status, REQUEST, STATUS_IS, NONE, 0, 0, "How the daemon is.")                \
    MESSAGE(57, STATUS_IS, status_is, REPLY, NONE, NONE, 0, 0, "It is so.")

#define WIRE_FIELDS_ERROR(FIELD)                                                                   \
    FIELD(U32, status, KVARVE_MISS, KVARVE_UNAVAILABLE, "kvarve_status.")                          \
    FIELD(U32, os_errno, 0, INT32_MAX, "The errno behind KVARVE_IO; 0: none.")                     \
    FIELD(TEXT, text, 192, 0, "One line for a person.")

#define WIRE_FIELDS_EVENT(FIELD)                                                                   \
    FIELD(U32, kind, KVARVE_EVENT_COPY_REQUESTED, KVARVE_EVENT_STAGED, "kvarve_event_kind.")       \
    FIELD(U32, rank, 0, UINT32_MAX, "Where the kind says so.")                                     \
    FIELD(U32, status, KVARVE_OK, KVARVE_UNAVAILABLE, "kvarve_status.")                            \
    FIELD(U32, reason, 0, UINT32_MAX, "Where the kind says so.")                                   \
    FIELD(U64, cookie, 1, UINT64_MAX, "Of the put or lease.")

#define WIRE_FIELDS_HELLO(FIELD)                                                                   \
    FIELD(U64, magic, WIRE_MAGIC, WIRE_MAGIC, "The bytes `kvwire1\\n`.")                           \
    FIELD(U32, version_oldest, 1, UINT32_MAX, "The client speaks from this one on,")               \
    FIELD(U32, version_newest, 1, UINT32_MAX, "up to this one.")                                   \
    FIELD(U32, pid, 0, INT32_MAX, "For logs; the socket says who it is.")                          \
    FIELD(U64, letter_bytes, 0, WIRE_LETTER_MAX, "Size of the letter. 0: there is none.")

#define WIRE_FIELDS_WELCOME(FIELD)                                                                 \
    FIELD(U32, version, 1, UINT32_MAX, "The one that is spoken from now on.")                      \
    FIELD(U32, io_timeout_ms, 1, UINT32_MAX, "The store's.")                                       \
    FIELD(U64, epoch, 1, UINT64_MAX, "Of the serving process.")                                    \
    FIELD(BYTES, store, 16, 0, "The store's uuid.")                                                \
    FIELD(U64, arena_bytes, 0, UINT64_MAX, "Size of the arena's file, head included.")             \
    FIELD(BYTES, fingerprint, 16, 0, "XXH3-128 of the arena's first block.")

#define WIRE_FIELDS_NAMESPACE_OPEN(FIELD)                                                          \
    FIELD(U32, rank_count, 1, KVARVE_RANKS_MAX, "Ranks.")                                          \
    FIELD(U32, flags, 0, KVARVE_NAMESPACE_EXACT, "KVARVE_NAMESPACE_...")                           \
    FIELD(LETTER, identity, 1, 65536, "identity_json.")                                            \
    FIELD(LETTER, numerics, 1, 65536, "numerics_json; empty: NULL.")                               \
    FIELD(LETTER, salt, 1, 1024, "Tenant salt; empty: NULL.")                                      \
    FIELD(LETTER, draft_identity, 1, 65536, "draft_identity_json; empty: NULL.")

#define WIRE_FIELDS_NAMESPACE_OPENED(FIELD)                                                        \
    FIELD(U64, space, 1, UINT64_MAX, "Its handle.")                                                \
    FIELD(TEXT, text, 96, 1, "kvarve_namespace_text.")

#define WIRE_FIELDS_NAMESPACE_RELEASE(FIELD)                                                       \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")

#define WIRE_FIELDS_PUT_BEGIN(FIELD)                                                               \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")                                    \
    FIELD(RECORD, prefix, PREFIX, prefix, "The tokens.")                                           \
    FIELD(RECORD, options, PUT_OPTIONS, put_options, "The options.")

#define WIRE_FIELDS_PUT_BEGUN(FIELD)                                                               \
    FIELD(U64, put, 1, UINT64_MAX, "Its handle.")                                                  \
    FIELD(RECORD, status, PUT_STATUS, put_status, "Where it stands.")

#define WIRE_FIELDS_PUT_WAIT(FIELD)                                                                \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(U32, state, KVARVE_PUT_STAGED, KVARVE_PUT_DURABLE, "kvarve_put_state.")                  \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest.")

#define WIRE_FIELDS_PUT_STATE(FIELD)                                                               \
    FIELD(RECORD, status, PUT_STATUS, put_status, "Where it stands.")

#define WIRE_FIELDS_PUT_PLAN(FIELD)                                                                \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose plan.")                                              \
    FIELD(U32, max, 0, UINT32_MAX, "At most so many entries; also what fits. 0: the total alone.") \
    FIELD(U64, from, 0, UINT64_MAX, "The first entry that is wanted.")

#define WIRE_FIELDS_PUT_PLANNED(FIELD)                                                             \
    FIELD(U64, total, 0, UINT64_MAX, "Entries of the whole plan.")

#define WIRE_FIELDS_PUT_FIRST_TOKENS(FIELD) FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")

#define WIRE_FIELDS_PUT_ACK(FIELD)                                                                 \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Who acks.")                                                \
    FIELD(LETTER, digests, 32, WIRE_LETTER_MAX, "page_digest records; the pool takes others.")

#define WIRE_FIELDS_PUT_FAIL(FIELD)                                                                \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Who fails.")

#define WIRE_FIELDS_PUT_EXTEND(FIELD)                                                              \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(RECORD, prefix, PREFIX, prefix, "The tokens.")                                           \
    FIELD(U64, tokens, 0, WIRE_TOKENS_MAX, "Stage the full pages up to here.")                     \
    FIELD(LETTER, digests, 32, WIRE_LETTER_MAX, "page_digest records.")

#define WIRE_FIELDS_PUT_CLOSE(FIELD)                                                               \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(RECORD, prefix, PREFIX, prefix, "The tokens.")                                           \
    FIELD(RECORD, options, PUT_OPTIONS, put_options, "The options.")

#define WIRE_FIELDS_PUT_ABORT(FIELD)                                                               \
    FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")                                            \
    FIELD(U32, refusal, 1, KVARVE_REFUSED_CLOSED, "kvarve_refusal.")

#define WIRE_FIELDS_PUT_RELEASE(FIELD) FIELD(U64, put, 1, UINT64_MAX, "The put's handle.")

#define WIRE_FIELDS_FIND(FIELD)                                                                    \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")                                    \
    FIELD(RECORD, prefix, PREFIX, prefix, "The tokens.")                                           \
    FIELD(RECORD, options, FIND_OPTIONS, find_options, "The options.")                             \
    FIELD(U32, from, 0, WIRE_ANSWERS_MAX, "The first boundary that is wanted.")                    \
    FIELD(U32, max, 0, WIRE_ANSWERS_MAX, "At most so many; also what fits.")

#define WIRE_FIELDS_FIND_POINTS(FIELD)                                                             \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")                                    \
    FIELD(LETTER, points, 40, WIRE_POINTS_BYTES_MAX, "point records, lengths rising.")             \
    FIELD(RECORD, options, FIND_OPTIONS, find_options, "The options.")                             \
    FIELD(U32, from, 0, WIRE_ANSWERS_MAX, "The first boundary that is wanted.")                    \
    FIELD(U32, max, 0, WIRE_ANSWERS_MAX, "At most so many; also what fits.")

#define WIRE_FIELDS_FOUND(FIELD)                                                                   \
    FIELD(U64, lease, 0, UINT64_MAX, "Its handle. 0: none was asked for, or a miss.")              \
    FIELD(RECORD, leased, BOUNDARY, boundary, "What is leased; else zeros.")                       \
    FIELD(RECORD, miss, MISS, miss, "Why there is none.")

#define WIRE_FIELDS_FIND_ALL(FIELD)                                                                \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")                                    \
    FIELD(RECORD, prefix, PREFIX, prefix, "The tokens.")                                           \
    FIELD(RECORD, options, FIND_OPTIONS, find_options, "The options.")                             \
    FIELD(U64, from, 0, WIRE_TOKENS_MAX, "The first byte that is wanted.")

#define WIRE_FIELDS_FOUND_ALL(FIELD)                                                               \
    FIELD(U64, total, 0, WIRE_TOKENS_MAX, "Bytes of the whole bitmap.")

#define WIRE_FIELDS_LEASE_LOAD(FIELD)                                                              \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Of the load. 0: the store's.")

#define WIRE_FIELDS_LEASE_WAIT(FIELD)                                                              \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest.")

#define WIRE_FIELDS_LEASE_STATE(FIELD)                                                             \
    FIELD(U32, state, 0, 3, "0: soft, 1: loading, 2: loaded, 3: failed.")                          \
    FIELD(RECORD, miss, MISS, miss, "Why it failed.")

#define WIRE_FIELDS_LEASE_EXTENT(FIELD)                                                            \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose pages.")                                             \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Of which group.")

#define WIRE_FIELDS_LEASE_EXTENT_IS(FIELD)                                                         \
    FIELD(U64, first, 0, UINT64_MAX, "The first page's position.")                                 \
    FIELD(U64, pages, 0, UINT64_MAX, "How many pages.")                                            \
    FIELD(U64, bytes, 0, UINT64_MAX, "Of them all.")

#define WIRE_FIELDS_LEASE_PAGES(FIELD)                                                             \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose pages.")                                             \
    FIELD(U32, max, 0, UINT32_MAX, "At most so many entries; also what fits. 0: the total alone.") \
    FIELD(U64, from, 0, UINT64_MAX, "The first entry that is wanted.")

#define WIRE_FIELDS_LEASE_PAGES_ARE(FIELD)                                                         \
    FIELD(U64, total, 0, UINT64_MAX, "Entries of the whole rank.")

#define WIRE_FIELDS_PAGE_BEGIN(FIELD)                                                              \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose page.")                                              \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Of which group.")                                        \
    FIELD(U64, position, 0, UINT64_MAX, "Page index, or part.")                                    \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest, BUSY.")

#define WIRE_FIELDS_PAGE_BEGUN(FIELD)                                                              \
    FIELD(U64, pin, 1, UINT64_MAX, "What PAGE_END names.")                                         \
    FIELD(RECORD, page, PAGE_ENTRY, page_entry, "The page.")

#define WIRE_FIELDS_PAGE_END(FIELD)                                                                \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U64, pin, 1, UINT64_MAX, "As PAGE_BEGUN said.")                                          \
    FIELD(U8, was_verified, 0, 1, "1: its digest was taken and compared.")                         \
    FIELD(U8, is_right, 0, 1, "0: it did not match.")

#define WIRE_FIELDS_READ_AHEAD(FIELD)                                                              \
    FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")                                        \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose pages.")                                             \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Of which group.")                                        \
    FIELD(U64, position, 0, UINT64_MAX, "The first one.")                                          \
    FIELD(U64, count, 0, UINT64_MAX, "How many.")

#define WIRE_FIELDS_LEASE_RELEASE(FIELD) FIELD(U64, lease, 1, UINT64_MAX, "The lease's handle.")

#define WIRE_FIELDS_EXPORT(FIELD)                                                                  \
    FIELD(U32, kind, WIRE_HANDLE_PUT, WIRE_HANDLE_LEASE, "1: a put, 2: a lease.")                  \
    FIELD(U64, handle, 1, UINT64_MAX, "Its handle.")

#define WIRE_FIELDS_EXPORTED(FIELD) FIELD(BYTES, token, 32, 0, "Random; whoever has it may attach.")

#define WIRE_FIELDS_ATTACH(FIELD)                                                                  \
    FIELD(U64, space, 1, UINT64_MAX, "The handle of the same namespace, opened here.")             \
    FIELD(BYTES, token, 32, 0, "As EXPORTED said.")                                                \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Which rank this process is.")

#define WIRE_FIELDS_ATTACHED(FIELD)                                                                \
    FIELD(U32, kind, WIRE_HANDLE_PUT, WIRE_HANDLE_LEASE, "1: a put, 2: a lease.")                  \
    FIELD(U64, handle, 1, UINT64_MAX, "Its handle here.")                                          \
    FIELD(RECORD, status, PUT_STATUS, put_status, "A put: where it stands; else zeros.")           \
    FIELD(RECORD, leased, BOUNDARY, boundary, "A lease: what is leased; else zeros.")

#define WIRE_FIELDS_FENCE(FIELD)                                                                   \
    FIELD(U64, space, 1, UINT64_MAX, "The namespace's handle.")                                    \
    FIELD(U32, rank, 0, WIRE_RANK_MAX, "Whose blocks.")                                            \
    FIELD(U32, group, 0, WIRE_GROUP_MAX, "Of which group.")                                        \
    FIELD(LETTER, blocks, 4, WIRE_LETTER_MAX, "Block ids, u32.")                                   \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest, BUSY.")

#define WIRE_FIELDS_LIST(FIELD) FIELD(U64, from, 0, UINT64_MAX, "The first one that is wanted.")

#define WIRE_FIELDS_LISTED(FIELD) FIELD(U64, total, 0, UINT64_MAX, "Checkpoints that there are.")

#define WIRE_FIELDS_DROP(FIELD) FIELD(BYTES, id, 32, 0, "Of the checkpoint.")

#define WIRE_FIELDS_VERIFY(FIELD)                                                                  \
    FIELD(U8, is_begin, 0, 1, "1: begin; BUSY when one runs. 0: follow the one that runs.")        \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest.")

#define WIRE_FIELDS_VERIFIED(FIELD)                                                                \
    FIELD(U8, is_over, 0, 1, "1: it ended.")                                                       \
    FIELD(RECORD, result, VERIFY_RESULT, verify_result, "What was found so far.")

#define WIRE_FIELDS_TRIM(FIELD)                                                                    \
    FIELD(U8, is_begin, 0, 1, "1: begin; BUSY when one runs. 0: follow the one that runs.")        \
    FIELD(U32, timeout_ms, 0, UINT32_MAX, "Answer then at the latest.")

#define WIRE_FIELDS_TRIMMED(FIELD)                                                                 \
    FIELD(U8, is_over, 0, 1, "1: it ended.")                                                       \
    FIELD(U64, bytes, 0, UINT64_MAX, "Given back so far.")                                         \
    FIELD(U32, status, KVARVE_OK, KVARVE_UNAVAILABLE, "kvarve_status of the whole.")

#define WIRE_FIELDS_DOCUMENT(FIELD)                                                                \
    FIELD(TEXT, namespace_text, 96, 1, "Of which namespace.")                                      \
    FIELD(U64, from, 0, UINT64_MAX, "The first byte that is wanted.")

#define WIRE_FIELDS_DOCUMENT_IS(FIELD)                                                             \
    FIELD(U64, total, 0, UINT64_MAX, "Bytes of the whole document.")

#define WIRE_FIELDS_STATUS_IS(FIELD)                                                               \
    FIELD(U32, pid, 1, INT32_MAX, "Of the daemon.")                                                \
    FIELD(TEXT, version, 32, 1, "Of kvarve.")                                                      \
    FIELD(U64, uptime_s, 0, UINT64_MAX, "Since it began to serve.")                                \
    FIELD(U32, clients, 0, UINT32_MAX, "Sessions with a socket.")                                  \
    FIELD(U32, quarantined, 0, UINT32_MAX, "Sessions without, whose process is not known gone.")   \
    FIELD(U64, arena_bytes, 0, UINT64_MAX, "Size of the arena.")                                   \
    FIELD(U64, arena_bytes_populated, 0, UINT64_MAX, "Of it really allocated by now.")             \
    FIELD(U8, is_huge, 0, 1, "1: the arena has huge pages.")                                       \
    FIELD(U8, would_survive, 0, 1, "1: the arena outlives this process.")

#endif
