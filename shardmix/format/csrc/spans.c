/* Gather and scatter spans of items. Python twin: copy_spans in shardmix/format/spans.py.
 *
 * Rule 1: all spans are checked before the first byte is written.
 * Rule 2: spans of a few bytes are most of them (a number, a word of text), and are copied without a call.
 */

#include "spans.h"
#include "words.h"

int64_t find_bad_span(const int64_t *source_start, const int64_t *length, const int64_t *out_start, int64_t count,
                      int64_t source_items, int64_t out_items)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t n = length[i];
        if (n < 0 || source_start[i] < 0 || out_start[i] < 0)
            return i;
        if (n > source_items || source_start[i] > source_items - n)
            return i;
        if (n > out_items || out_start[i] > out_items - n)
            return i;
    }
    return -1;
}

static inline void copy_bytes(uint8_t *to, const uint8_t *from, int64_t n)
{
    if (n > 16) {
        memcpy(to, from, (size_t)n);
    } else if (n >= 8) { /* two words that overlap where n < 16 */
        uint64_t head = load_u64(from), tail = load_u64(from + n - 8);
        memcpy(to, &head, 8);
        memcpy(to + n - 8, &tail, 8);
    } else if (n >= 4) {
        uint32_t head = load_u32(from), tail = load_u32(from + n - 4);
        memcpy(to, &head, 4);
        memcpy(to + n - 4, &tail, 4);
    } else {
        while (n-- > 0)
            *to++ = *from++;
    }
}

void copy_spans(const uint8_t *source, const int64_t *source_start, const int64_t *length, uint8_t *out,
                const int64_t *out_start, int64_t count, int64_t item_bytes)
{
    for (int64_t i = 0; i < count; i++)
        copy_bytes(out + out_start[i] * item_bytes, source + source_start[i] * item_bytes, length[i] * item_bytes);
}
