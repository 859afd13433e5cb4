/* One Feature: its kind, and the content of its list. Read by both passes, so that they cannot differ. */

#ifndef SHARDMIX_FEATURE_H
#define SHARDMIX_FEATURE_H

#include "example.h"
#include "wire.h"

typedef struct {
    int kind;
    const uint8_t *start; /* packed numbers, or the content of a BytesList */
    const uint8_t *end;
} value_list;

/* 0, or -1 when the Feature has several kinds, unknown fields, or numbers that are not packed in one piece. */
static inline int read_feature(const uint8_t *p, const uint8_t *end, value_list *list)
{
    uint32_t bytes;

    list->kind = KIND_UNSET;
    list->start = list->end = end;
    if (p == end)
        return 0;
    uint8_t tag = *p;
    if (tag != TAG_1 && tag != TAG_2 && tag != TAG_3)
        return -1;
    p = read_length(p + 1, end, &bytes);
    if (!p || p + bytes != end)
        return -1;
    list->kind = tag >> 3;
    list->start = p;
    if (list->kind == KIND_BYTES || p == end)
        return 0;
    p = read_field(p, end, TAG_1, &bytes);
    if (!p || p + bytes != end)
        return -1;
    list->start = p;
    return 0;
}

/* Read the next value of a BytesList; NULL when it is odd. */
static inline const uint8_t *read_value(const uint8_t *p, const uint8_t *end, uint32_t *bytes)
{
    return read_field(p, end, TAG_1, bytes);
}

/* Read the next Feature of a FeatureList; NULL when it is odd. */
static inline const uint8_t *read_step(const uint8_t *p, const uint8_t *end, value_list *list)
{
    uint32_t bytes;
    p = read_field(p, end, TAG_1, &bytes);
    return p && read_feature(p, p + bytes, list) == 0 ? p + bytes : NULL;
}

#endif
