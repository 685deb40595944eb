/*
 * segment_sample.h - a set of segment files on a simulated host, and requests that are waited for.
 */
#ifndef KVARVE_TESTS_UNIT_SEGMENT_SEGMENT_SAMPLE_H
#define KVARVE_TESTS_UNIT_SEGMENT_SEGMENT_SAMPLE_H

#include <string.h>

#include "segment/segment.h"
#include "simulate/world.h"

#define SAMPLE_FOLDER "store/segments"
#define SAMPLE_SLOT   UINT32_C(16384)

static const store_uuid sample_store = {{1, 2, 3, 4}};

static inline segment_options sample_options(void)
{
    return (segment_options){.store = sample_store, .file_bytes = 1 << 20, .use_direct = true};
}

/* A host with the folder `store`. */
static inline sim_world *sample_world(uint64_t seed)
{
    sim_world *world = world_create(seed);
    kvarve_io *io = world_env(world)->io;

    assert_int_equal(io->ops->make_directory(io, "store", 0700), 0);
    assert_int_equal(io->ops->sync_directory(io, "/"), 0);
    return world;
}

static inline segment_set *sample_open(sim_world *world)
{
    const segment_options options = sample_options();
    segment_set *set = NULL;
    kvarve_error err = {0};

    if (segment_open(world_env(world), SAMPLE_FOLDER, &options, &set, &err) != KVARVE_OK) {
        fail_msg("open: %s", err.text);
    }
    return set;
}

/* A request whose done counts. */
typedef struct sample_request {
    segment_request base;
    int done_count;
} sample_request;

static inline void sample_done(segment_request *request, void *context)
{
    sample_request *own = context;

    assert_ptr_equal(request, &own->base);
    own->done_count++;
}

static inline void sample_prepare(sample_request *request, segment_part *parts, size_t count)
{
    *request = (sample_request){0};
    request->base.parts = parts;
    request->base.part_count = count;
    request->base.done = sample_done;
    request->base.context = request;
}

/* What came of a request that was submitted with `submitted`. */
static inline kvarve_status sample_finish(sim_world *world, sample_request *request,
                                          kvarve_status submitted)
{
    if (submitted != KVARVE_OK) {
        assert_int_equal(request->done_count, 0);
        return submitted;
    }
    assert_int_equal(request->done_count, 0); /* Never from inside a submit. */
    world_poll_all(world);
    assert_int_equal(request->done_count, 1);
    return request->base.status;
}

static inline kvarve_status sample_grow(sim_world *world, segment_set *set, uint32_t slot_bytes,
                                        uint64_t bytes_max)
{
    sample_request request;

    sample_prepare(&request, NULL, 0);
    return sample_finish(world, &request,
                         segment_grow(set, slot_bytes, bytes_max, &request.base, NULL));
}

static inline kvarve_status sample_write(sim_world *world, segment_set *set, segment_part *parts,
                                         size_t count)
{
    sample_request request;

    sample_prepare(&request, parts, count);
    return sample_finish(world, &request, segment_write(set, &request.base, NULL));
}

static inline kvarve_status sample_read(sim_world *world, segment_set *set, segment_part *parts,
                                        size_t count)
{
    sample_request request;

    sample_prepare(&request, parts, count);
    return sample_finish(world, &request, segment_read(set, &request.base, NULL));
}

static inline kvarve_status sample_sync(sim_world *world, segment_set *set, const uint32_t *files,
                                        size_t count)
{
    sample_request request;

    sample_prepare(&request, NULL, 0);
    return sample_finish(world, &request, segment_sync(set, files, count, &request.base, NULL));
}

static inline kvarve_status sample_trim(sim_world *world, segment_set *set, uint64_t *out_bytes)
{
    sample_request request;

    sample_prepare(&request, NULL, 0);
    return sample_finish(world, &request, segment_trim(set, out_bytes, &request.base, NULL));
}

static inline kvarve_status sample_write_header(sim_world *world, segment_set *set,
                                                header_place place, const void *bytes)
{
    sample_request request;

    sample_prepare(&request, NULL, 0);
    return sample_finish(world, &request,
                         segment_write_header(set, place, bytes, &request.base, NULL));
}

static inline segment_counters sample_count(const segment_set *set)
{
    segment_counters counters;

    segment_count(set, &counters);
    return counters;
}

/* Fill bytes so that each page differs. */
static inline void sample_fill(uint8_t *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
    }
}

#endif
