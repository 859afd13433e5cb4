/* Lists of varints: seven bits a byte, the lowest first, the top bit set on all bytes but the last.
 *
 * Rule 1: eight bytes at a time while there are eight, one at a time in the tail.
 * Rule 2: a varint of ten bytes ends in 1 (the 64th bit); another end, or an eleventh byte, is odd.
 */

#include "wire.h"

static inline unsigned count_tops(uint64_t tops)
{
    return (unsigned)(((tops >> 7) * 0x0101010101010101u) >> 56);
}

/* How many bytes of a word come after the highest one with its top bit set in `tops`; `tops` is not 0. */
static inline unsigned bytes_above(uint64_t tops)
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_clzll(tops) >> 3;
#else
    unsigned n = 0;
    for (; !(tops >> 56); tops <<= 8)
        n++;
    return n;
#endif
}

/* Whether a varint of `before` bytes and this last one is longer than an int64. */
static inline int is_too_long(unsigned before, uint8_t last)
{
    return before >= VARINT_MAX_BYTES || (before == VARINT_MAX_BYTES - 1 && last != 1);
}

int64_t count_varints(const uint8_t *p, const uint8_t *end)
{
    int64_t count = 0;
    unsigned open = 0; /* bytes of a varint that has not ended yet */

    for (; end - p >= 8; p += 8) {
        uint64_t ends = ~load_u64(p) & VARINT_TOPS;
        if (!ends) {
            open += 8;
            if (open >= VARINT_MAX_BYTES)
                return -1;
            continue;
        }
        unsigned first = bytes_below(ends);
        if (is_too_long(open + first, p[first]))
            return -1;
        count += count_tops(ends);
        open = bytes_above(ends);
    }
    for (; p != end; p++) {
        if (*p & 0x80) {
            open++;
            continue;
        }
        if (is_too_long(open, *p))
            return -1;
        count++;
        open = 0;
    }
    return open ? -1 : count;
}

/* The seven-bit groups of a word's bytes, side by side; the top bits are ignored. */
static inline uint64_t join_groups(uint64_t w)
{
    w = (w & 0x007f007f007f007fu) | ((w & 0x7f007f007f007f00u) >> 1);
    w = (w & 0x00003fff00003fffu) | ((w & 0x3fff00003fff0000u) >> 2);
    return (w & 0x000000000fffffffu) | ((w & 0x0fffffff00000000u) >> 4);
}

/* One varint, byte by byte; NULL when it is cut or too long. */
static const uint8_t *decode_slowly(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (unsigned shift = 0; p != end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = v;
            return p;
        }
    }
    return NULL;
}

int64_t decode_varints(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t room)
{
    int64_t count = 0;

    for (; p != end; count++, out += 8) {
        uint64_t value;
        if (count == room)
            return -1;
        if (end - p >= 8) {
            uint64_t w = load_u64(p);
            if (!(w & 0x80)) {
                value = w & 0x7f;
                p += 1;
            } else if (!(w & 0x8000)) {
                value = (w & 0x7f) | (w & 0x7f00) >> 1;
                p += 2;
            } else if (!(w & 0x800000)) {
                value = (w & 0x7f) | (w & 0x7f00) >> 1 | (w & 0x7f0000) >> 2;
                p += 3;
            } else {
                uint64_t ends = ~w & VARINT_TOPS;
                if (ends) {
                    value = join_groups(w & (ends ^ (ends - 1)));
                    p += bytes_below(ends) + 1;
                } else if (!(p = decode_slowly(p, end, &value))) {
                    return -1;
                }
            }
        } else if (!(p = decode_slowly(p, end, &value))) {
            return -1;
        }
        memcpy(out, &value, 8);
    }
    return count;
}
