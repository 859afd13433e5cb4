/* The protobuf wire format, as far as an Example uses it.
 *
 * Rule 1: every read is checked against the end that it is given, by comparing with what is left.
 * Rule 2: what is not written the usual way reads as NULL or -1, "odd": protobuf itself will say what it means.
 *
 * Source: https://protobuf.dev/programming-guides/encoding
 */

#ifndef SHARDMIX_WIRE_H
#define SHARDMIX_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "words.h"

#define VARINT_TOPS 0x8080808080808080u
#define VARINT_MAX_BYTES 10

/* Tags: field number << 3 | wire type 2. Every field of an Example but the numbers themselves is length-delimited. */
enum tag { TAG_1 = 0x0a, TAG_2 = 0x12, TAG_3 = 0x1a };

/* Read the length of what follows. NULL when it is cut, longer than five bytes, padded with zeros, or more than is left. */
static inline const uint8_t *read_length(const uint8_t *p, const uint8_t *end, uint32_t *length)
{
    if (p == end)
        return NULL;
    uint64_t value = *p++;
    if (value >= 0x80) {
        uint8_t byte;
        unsigned shift = 7;
        value &= 0x7f;
        do {
            if (p == end || shift > 28)
                return NULL;
            byte = *p++;
            value |= (uint64_t)(byte & 0x7f) << shift;
            shift += 7;
        } while (byte & 0x80);
        if (byte == 0)
            return NULL;
    }
    if (value > (uint64_t)(end - p))
        return NULL;
    *length = (uint32_t)value;
    return p;
}

/* Read a tag that must be `tag`, and a length. */
static inline const uint8_t *read_field(const uint8_t *p, const uint8_t *end, uint8_t tag, uint32_t *length)
{
    return p != end && *p == tag ? read_length(p + 1, end, length) : NULL;
}

/* How many varints some bytes are; -1 when the last is cut, or one is longer than an int64 can be. */
int64_t count_varints(const uint8_t *p, const uint8_t *end);

/* Decode varints that were counted. Returns their number; -1 when they are more than `room`, or were changed since. `out` may be
 * unaligned; `is_streamed`: it is written past the caches (stream.h). */
int64_t decode_varints(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t room, int is_streamed);

/* The seven-bit groups of a word's bytes, side by side; the top bits are ignored. */
static inline uint64_t join_groups(uint64_t w)
{
    w = (w & 0x007f007f007f007fu) | ((w & 0x7f007f007f007f00u) >> 1);
    w = (w & 0x00003fff00003fffu) | ((w & 0x3fff00003fff0000u) >> 2);
    return (w & 0x000000000fffffffu) | ((w & 0x0fffffff00000000u) >> 4);
}

/* Decode a varint of 1 to 8 bytes, the lowest ones of a word. -1 when they are not one varint. */
static inline int decode_varint_word(uint64_t word, uint32_t bytes, uint8_t *out)
{
    uint64_t last = (uint64_t)0x80 << (8 * (bytes - 1)), used = last | (last - 1);
    uint64_t value = join_groups(word & used);
    memcpy(out, &value, 8);
    return (~word & VARINT_TOPS & used) == last ? 0 : -1;
}

/* Whether some bytes are UTF-8, without surrogates, overlong forms, or anything above U+10FFFF. */
int is_utf8(const uint8_t *p, const uint8_t *end);

#endif
