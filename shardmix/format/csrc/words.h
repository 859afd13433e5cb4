/* Words of memory at any alignment, little-endian. */

#ifndef SHARDMIX_WORDS_H
#define SHARDMIX_WORDS_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the C backend is for little-endian machines; the Python backend works on all"
#endif

static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* How many bytes of a word come before the lowest one with its top bit set in `tops`; `tops` is not 0. */
static inline unsigned bytes_below(uint64_t tops)
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctzll(tops) >> 3;
#else
    unsigned n = 0;
    while (!(tops & 0xff)) {
        tops >>= 8;
        n++;
    }
    return n;
#endif
}

#endif
