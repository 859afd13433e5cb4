/* Spans of bytes; see spans.c. */

#ifndef SHARDMIX_SPANS_H
#define SHARDMIX_SPANS_H

#include <stdint.h>

/* The first span that is negative, or leaves either array; -1 when all are within. Sizes and spans in items. */
int64_t find_bad_span(const int64_t *source_start, const int64_t *length, const int64_t *out_start, int64_t count,
                      int64_t source_items, int64_t out_items);

/* Copy spans that were found good. */
void copy_spans(const uint8_t *source, const int64_t *source_start, const int64_t *length, uint8_t *out,
                const int64_t *out_start, int64_t count, int64_t item_bytes);

#endif
