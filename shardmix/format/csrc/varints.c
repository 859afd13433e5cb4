/* Lists of varints: seven bits a byte, the lowest first, the top bit set on all bytes but the last.
 *
 * Rule 1: a varint of ten bytes ends in 1 (the 64th bit); another end, or an eleventh byte, is odd.
 * Rule 2: 64 bytes at a time: their top bits make one word, in which the ends of the varints are the zeros. Walking from zero to
 * zero has no branch that depends on how long a varint is, and the next one does not wait for the last. A word at a time in the
 * tail, one byte at a time for varints of more than eight bytes (negative numbers take ten).
 * Rule 3: where the processor has instructions for that, they are used (varints_x86.c).
 * Rule 4: what is streamed (stream.h) is put together in the cache first, so that whole lines are written.
 */

#include "varints.h"

#include "stream.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

#define STAGED_VALUES 512

static inline unsigned count_bits(uint64_t w)
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_popcountll(w);
#else
    w -= (w >> 1) & 0x5555555555555555u;
    w = (w & 0x3333333333333333u) + ((w >> 2) & 0x3333333333333333u);
    return (unsigned)(((((w + (w >> 4)) & 0x0f0f0f0f0f0f0f0fu)) * 0x0101010101010101u) >> 56);
#endif
}

/* The number of zeros below the lowest bit of a word that is not 0. */
static inline unsigned count_low_zeros(uint64_t w)
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctzll(w);
#else
    return count_bits((w & (0 - w)) - 1);
#endif
}

/* The number of zeros above the highest bit of a word that is not 0. */
static inline unsigned count_high_zeros(uint64_t w)
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_clzll(w);
#else
    for (unsigned shift = 1; shift < 64; shift *= 2)
        w |= w >> shift;
    return 64 - count_bits(w);
#endif
}

/* The top bits of 64 bytes, that of the first byte lowest. */
static inline uint64_t top_bits(const uint8_t *p)
{
    uint64_t bits = 0;
#if defined(__SSE2__) || defined(_M_X64)
    for (int i = 0; i < 4; i++)
        bits |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i))) << (16 * i);
#else
    for (int i = 0; i < 8; i++)
        bits |= (((load_u64(p + 8 * i) & VARINT_TOPS) >> 7) * 0x0102040810204080u >> 56) << (8 * i);
#endif
    return bits;
}

/* Whether a varint of `before` bytes and this last one is longer than an int64. */
static inline int is_too_long(unsigned before, uint8_t last)
{
    return before >= VARINT_MAX_BYTES || (before == VARINT_MAX_BYTES - 1 && last != 1);
}

static int64_t count_slowly(const uint8_t *p, const uint8_t *end)
{
    int64_t count = 0;
    unsigned before = 0;
    for (; p != end; p++) {
        if (*p & 0x80) {
            before++;
        } else if (is_too_long(before, *p)) {
            return -1;
        } else {
            count++;
            before = 0;
        }
    }
    return before ? -1 : count;
}

static int64_t count_many(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    open_varint open = {0, 0, 0};
    int64_t count = 0;

    for (; end - p >= BLOCK_BYTES; p += BLOCK_BYTES) {
        uint64_t before = open.more, more = top_bits(p);
        if (find_long_after(&open, more)) {
            open.more = before;
            break;
        }
        count += count_bits(~more);
    }
    *at = p - count_high_zeros(~open.more); /* where the varint begins that is open */
    return count;
}

/* One varint, byte by byte; NULL when it is cut or too long. */
static const uint8_t *decode_slowly(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (unsigned shift = 0; p != end && shift < 7 * VARINT_MAX_BYTES; shift += 7) {
        uint8_t byte = *p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = v;
            return p;
        }
    }
    return NULL;
}

/* One varint; NULL when it is cut or too long. */
static const uint8_t *decode_one(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    if (end - p < WORD_BYTES)
        return decode_slowly(p, end, value);
    uint64_t word = load_u64(p), ends = ~word & VARINT_TOPS;
    if (!ends)
        return decode_slowly(p, end, value);
    unsigned last = bytes_below(ends);
    *value = join_groups(word & (UINT64_MAX >> (8 * (WORD_BYTES - 1 - last))));
    return p + last + 1;
}

static int64_t decode_many(const uint8_t **at, const uint8_t *end, uint8_t *out, int64_t room)
{
    const uint8_t *p = *at;
    int64_t count = 0;

    while (end - p >= BLOCK_BYTES + WORD_BYTES) {
        uint64_t ends = ~top_bits(p);
        unsigned start = 0;
        if (count_bits(ends) > room - count)
            break;
        for (; ends; ends &= ends - 1) {
            unsigned next = count_low_zeros(ends) + 1;
            if (next - start > WORD_BYTES)
                break;
            uint64_t value = join_groups(load_u64(p + start) & (UINT64_MAX >> (8 * (WORD_BYTES - next + start))));
            memcpy(out + 8 * count++, &value, 8);
            start = next;
        }
        p += start;
        if (!start)
            break;
    }
    *at = p;
    return count;
}

const varint_methods varints_portable = {count_many, decode_many};

static const varint_methods *choose_methods(void)
{
    const varint_methods *better = varints_x86();
    return better ? better : &varints_portable;
}

int64_t count_varints(const uint8_t *p, const uint8_t *end)
{
    int64_t count = end - p >= BLOCK_BYTES ? choose_methods()->count(&p, end) : 0;
    int64_t rest = count_slowly(p, end);
    return rest < 0 ? -1 : count + rest;
}

/* Decode up to `room` varints. Moves `p` behind them; returns their number, or -1 where one is cut or too long. */
static int64_t decode_upto(const varint_methods *methods, const uint8_t **p, const uint8_t *end, uint8_t *out, int64_t room)
{
    int64_t count = 0;

    while (*p != end && count < room) {
        count += methods->decode(p, end, out + 8 * count, room - count);
        if (*p == end || count == room)
            break;
        uint64_t value;
        if (!(*p = decode_one(*p, end, &value)))
            return -1;
        memcpy(out + 8 * count++, &value, 8);
    }
    return count;
}

int64_t decode_varints(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t room, int is_streamed)
{
    const varint_methods *methods = choose_methods();
    int64_t count = 0, decoded;

    if (!is_streamed) {
        count = decode_upto(methods, &p, end, out, room);
        return count >= 0 && p == end ? count : -1;
    }
    while (p != end && count < room) {
        uint8_t staged[8 * STAGED_VALUES];
        decoded = decode_upto(methods, &p, end, staged, room - count < STAGED_VALUES ? room - count : STAGED_VALUES);
        if (decoded < 0)
            return -1;
        copy_streaming(out + 8 * count, staged, (size_t)decoded * 8);
        count += decoded;
    }
    return p == end ? count : -1;
}
