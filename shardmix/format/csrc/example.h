/* Examples to columns, in two passes; see locate.c and decode.c. */

#ifndef SHARDMIX_EXAMPLE_H
#define SHARDMIX_EXAMPLE_H

#include <stdint.h>

#define MAX_LEVELS 3          /* steps, values, bytes */
#define ANY_NUMBER (-1)       /* of values */
#define NOT_RAW (-1)          /* a column of values, not of one value's raw bytes */
#define MAX_PAYLOAD 0x7fffffff /* bytes; protobuf takes no more */

/* The kinds of a Feature: the numbers of its fields. */
enum kind { KIND_UNSET = 0, KIND_BYTES = 1, KIND_FLOAT = 2, KIND_INT64 = 3 };

/* One column to decode. */
typedef struct {
    const uint8_t *name;
    uint32_t name_bytes;
    int kind;
    int in_lists;        /* in the feature lists, not in the context: the outermost level counts steps */
    int has_default;     /* may be missing from a record */
    int counts_values;   /* a level counts the values of each item */
    int num_levels;
    int first_level;     /* its outermost level among those of all fields */
    int64_t num_values;  /* of each item, or ANY_NUMBER */
    int64_t raw_bytes;   /* of each value, or NOT_RAW */
} field;

typedef struct {
    field *fields;
    int num_fields;
    int num_levels; /* of all fields together */
    int is_sequence;
} schema;

/* Where a field's values are in a payload: packed numbers, or the content of a BytesList or FeatureList. */
typedef struct {
    uint32_t start;
    uint32_t bytes;
} place;

#define ROWS_AT_ONCE 64       /* of a column, before the next column's turn */
#define NO_MEMORY (-2)

#define MISSING_START 0xffffffffu /* the field is missing, and has a default value, which the caller fills in */

typedef struct {
    const uint8_t *data;
    int64_t bytes;
} payload;

/* What a row is. */
enum row_code { ROW_USUAL = 0, ROW_ODD = 1 };

/* Pass 1. Verify `count` payloads, find and count what the schema asks for.
 *
 *   places  [row][field]
 *   counts  [level][row]: items that the level counts in the row
 *   codes   [row]: ROW_ODD where the row needs the protobuf path
 *
 * What an odd row, or a missing field with a default, has in places and counts means nothing: its counts are the caller's to set.
 *
 * Returns 0, or -1 when there is no memory. */
int locate_values(const schema *wanted, const payload *payloads, int64_t count, place *places, int64_t *counts,
                  int64_t *codes);

/* Where the next row of a column goes, and what it may take. Any alignment. */
typedef struct {
    uint8_t *lengths[MAX_LEVELS]; /* int64, one array a level, outermost first */
    uint8_t *values;
    int64_t lengths_left[MAX_LEVELS]; /* set by pass 2 */
    int64_t bytes_left;
    int is_streamed; /* set by pass 2 */
    int64_t offset; /* with targets, of a dense field: where its rows begin after `start` */
} column;

/* Where a row of dense fields goes, in memory that is handed on to others: it is the row `position` of a column. */
typedef struct {
    uint8_t *start;
    int64_t position;
} row_target;

/* Bytes of one item of a column's values. */
int64_t item_bytes(const field *f);

/* How many entries a level has in a row, and how many items the values (level == num_levels). `counts`: of the field's outermost
 * level in this row; `rows`: from one level to the next. */
static inline int64_t count_entries(const int64_t *counts, int64_t rows, int level)
{
    return level == 0 ? 1 : counts[(level - 1) * rows];
}

/* Pass 2. Decode what pass 1 found into arrays that the sums of `counts` fill exactly. Odd rows, and missing fields, are left for
 * the caller to fill. `targets`: where each row of the dense fields goes, or NULL: one after another. Returns -1, or the first row
 * that is not as it was found. */
int64_t decode_values(const schema *wanted, const payload *payloads, int64_t count, const place *places,
                      const int64_t *counts, const int64_t *codes, column *columns, const row_target *targets);

/* Some rows of pass 2. */
int64_t decode_some(const schema *wanted, const payload *payloads, int64_t count, const place *places,
                    const int64_t *counts, const int64_t *codes, column *columns, const row_target *targets, int64_t first,
                    int64_t stop);

/* Both passes in turn, for fields without levels: what each row takes is known, and the payloads stay in the cache between the
 * passes. As decode_values, or NO_MEMORY. */
int64_t decode_dense_values(const schema *wanted, const payload *payloads, int64_t count, place *places, int64_t *codes,
                            column *columns, const row_target *targets);

#endif
