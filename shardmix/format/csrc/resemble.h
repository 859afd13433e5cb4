/* Map entries that resemble one of a record before.
 *
 * Rule 1: where all bytes before the numbers are those of an entry that was verified, then so is this one, but for its numbers: the
 * lengths, and with them where everything ends, are among those bytes.
 * Rule 2: only entries whose numbers can be verified at a glance are remembered: floats, and a single int64.
 */

#ifndef SHARDMIX_RESEMBLE_H
#define SHARDMIX_RESEMBLE_H

#include "feature.h"
#include "locator.h"

/* Whether some bytes are one varint of an int64. */
static inline int is_one_varint(const uint8_t *p, uint32_t bytes, const uint8_t *end)
{
    uint8_t value[8];
    if (bytes == 1)
        return !(*p & 0x80);
    return bytes <= 8 && end - p >= 8 && decode_varint_word(load_u64(p), bytes, value) == 0;
}

/* Take an entry of the context for what it resembles. Returns where it ends; NULL where it must be looked at. */
static inline const uint8_t *resemble(locator *at, const uint8_t *p, const uint8_t *end)
{
    key_order *order = &at->context;
    if (order->next >= order->known || end - p < 2)
        return NULL;
    const guess *g = &order->guesses[order->next];
    const pattern *known = &g->patterns[p[1] % MAX_PATTERNS];
    if (!known->start || end - p < (ptrdiff_t)known->bytes_before + known->bytes
        || !same_bytes(known->start, p, known->bytes_before))
        return NULL;
    const uint8_t *numbers = p + known->bytes_before;
    if (known->kind == KIND_INT64 && !is_one_varint(numbers, known->bytes, end))
        return NULL;
    if (g->field >= 0) {
        if (at->seen[g->field] == at->row)
            return NULL;
        at->seen[g->field] = at->row;
        put_place(at, g->field, numbers, numbers + known->bytes);
    }
    order->next++;
    return numbers + known->bytes;
}

/* Remember an entry that was verified, where others may resemble it: its feature is `value` … `value_end`. `g`: of its place among
 * the keys; NULL where there are no more. */
static inline void remember(const locator *at, guess *g, const uint8_t *entry, const uint8_t *value, const uint8_t *value_end,
                            const uint8_t *end, int number)
{
    value_list list;
    if (!g || (number >= 0 && at->wanted->fields[number].num_levels)
        || read_feature(value, value_end, &list) < 0 || list.start == list.end)
        return;
    uint32_t bytes = (uint32_t)(list.end - list.start);
    if (list.kind != KIND_FLOAT && (list.kind != KIND_INT64 || !is_one_varint(list.start, bytes, end)))
        return;
    pattern *known = &g->patterns[entry[1] % MAX_PATTERNS];
    known->start = entry;
    known->bytes_before = (uint32_t)(list.start - entry);
    known->bytes = bytes;
    known->kind = list.kind;
}

#endif
