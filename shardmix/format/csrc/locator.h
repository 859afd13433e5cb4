/* What pass 1 knows of the payloads before, and of the row at hand. */

#ifndef SHARDMIX_LOCATOR_H
#define SHARDMIX_LOCATOR_H

#include "example.h"
#include "names.h"
#include "words.h"

#define MAX_GUESSES 1024
#define MAX_PATTERNS 8

/* A map entry that was verified: what stands before its numbers, and how many bytes they take. They are floats, or one int64. */
typedef struct {
    const uint8_t *start; /* in a payload before; buffers are held for the whole call. NULL: nothing is known */
    uint32_t bytes_before;
    uint32_t bytes;
    int kind;
} pattern;

typedef struct {
    const uint8_t *key; /* in the payload before */
    uint32_t bytes;
    int field; /* of this name, or -1 */
    pattern patterns[MAX_PATTERNS]; /* by the byte that says how long the entry is: a varint may take more bytes or fewer */
} guess;

typedef struct {
    guess *guesses;
    int known; /* how many of them hold a key */
    int next;  /* the one to compare next */
} key_order;

typedef struct {
    const schema *wanted;
    name_table names;
    key_order context, lists;
    int has_names;
    int64_t *seen; /* [field]: the last row that has it */
    int64_t count;
    int64_t *counts;
    /* of the row at hand: */
    int64_t row;
    const uint8_t *payload;
    place *places;
} locator;

static inline void put_place(const locator *at, int number, const uint8_t *start, const uint8_t *end)
{
    at->places[number].start = (uint32_t)(start - at->payload);
    at->places[number].bytes = (uint32_t)(end - start);
}

static inline int same_bytes(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    if (n < 8)
        return memcmp(a, b, n) == 0;
    for (uint32_t i = 0; i + 8 < n; i += 8)
        if (load_u64(a + i) != load_u64(b + i))
            return 0;
    return load_u64(a + n - 8) == load_u64(b + n - 8);
}

#endif
