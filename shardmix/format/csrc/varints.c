/* Lists of varints: seven bits a byte, the lowest first, the top bit set on all bytes but the last.
 *
 * Rule 1: a varint of ten bytes ends in 1 (the 64th bit); another end, or an eleventh byte, is odd.
 * Rule 2: 64 bytes at a time: their top bits make one word, in which the ends of the varints are the zeros. Walking from zero to
 * zero has no branch that depends on how long a varint is, and the next one does not wait for the last. One byte at a time in
 * the tail, and for varints of more than eight bytes (negative numbers take ten).
 */

#include "stream.h"
#include "wire.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

#define BLOCK_BYTES 64
#define WORD_BYTES 8

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

int64_t count_varints(const uint8_t *p, const uint8_t *end)
{
    int64_t count = 0;

    while (end - p >= BLOCK_BYTES) {
        uint64_t more = top_bits(p), ends = ~more;
        uint64_t two = more & more >> 1, four = two & two >> 2, eight = four & four >> 4;
        if (eight) /* eight in a row that are not the last of theirs: look closely */
            break;
        count += count_bits(ends);
        p += BLOCK_BYTES - count_high_zeros(ends); /* the next block begins with the varint that is open */
    }
    int64_t rest = count_slowly(p, end);
    return rest < 0 ? -1 : count + rest;
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

/* The varints of at most eight bytes that end in a block, up to the first longer one. Returns their number and the bytes they
 * take. There are BLOCK_BYTES + WORD_BYTES to read. */
static inline int64_t decode_block(const uint8_t *p, uint64_t ends, uint8_t *out, unsigned *bytes, int is_streamed)
{
    static const uint64_t masks[WORD_BYTES + 1] = {
        0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, 0xffffffffffffffff,
    };
    uint8_t *first = out;
    unsigned start = 0;
    for (; ends; ends &= ends - 1, out += 8) {
        unsigned next = count_low_zeros(ends) + 1;
        if (next - start > WORD_BYTES)
            break;
        uint64_t value = join_groups(load_u64(p + start) & masks[next - start]);
        if (is_streamed)
            stream_u64(out, value);
        else
            memcpy(out, &value, 8);
        start = next;
    }
    *bytes = start;
    return (out - first) / 8;
}

int64_t decode_varints(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t room, int is_streamed)
{
    int64_t count = 0;

    while (p != end) {
        if (end - p >= BLOCK_BYTES + WORD_BYTES) {
            uint64_t ends = ~top_bits(p);
            unsigned bytes;
            if (count_bits(ends) > room - count)
                return -1;
            uint8_t *to = out + 8 * count;
            int64_t decoded = is_streamed ? decode_block(p, ends, to, &bytes, 1) : decode_block(p, ends, to, &bytes, 0);
            count += decoded;
            p += bytes;
            if (decoded)
                continue;
        }
        uint64_t value;
        if (count == room || !(p = decode_slowly(p, end, &value)))
            return -1;
        memcpy(out + 8 * count++, &value, 8);
    }
    return count;
}
