/*
 * digest.h - the stand-in engine's arithmetic: digests instead of neural networks.
 *
 * Shares nothing with the store's digests, so that a fault of theirs can not hide here. Every word
 * of the input decides the result: two inputs that differ in one word differ in the digest. Pure.
 */
#ifndef KVARVE_STANDIN_DIGEST_H
#define KVARVE_STANDIN_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_two(uint64_t a, uint64_t b);
uint64_t digest_bytes(uint64_t seed, const void *bytes, size_t size);

/* `size` bytes that follow from `seed`. */
void digest_fill(void *out, size_t size, uint64_t seed);

#endif
