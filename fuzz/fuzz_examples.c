/* Fuzz the decoding of Examples and SequenceExamples.
 *
 * Holds for every input: nothing is read or written out of place; what pass 1 counted, pass 2 fills exactly; and a row means the
 * same alone as after any others, whatever they made pass 1 expect. That it means what protobuf says is
 * tests/format/test_parity.py, which also runs over the corpus that this finds.
 *
 * Input: one byte of flags, then payloads, each behind its length (two bytes little-endian, cut at the end of the input).
 */

#include <stdlib.h>
#include <string.h>

#include "example.h"

#define MAX_ROWS 8
#define NUM_FIELDS 16
#define MAX_ENTRIES (NUM_FIELDS * (MAX_LEVELS + 1))
#define CHECK(condition) \
    do {                 \
        if (!(condition)) \
            abort();     \
    } while (0)

#define NAME(text) (const uint8_t *)(text), sizeof(text) - 1

/* Every kind of column, under the names of tests/format/odd_payloads.py.
 * name, kind, in_lists, has_default, counts_values, num_levels, first_level, num_values, raw_bytes */
static const field all_fields[NUM_FIELDS] = {
    {NAME("one"), KIND_INT64, 0, 1, 0, 0, 0, 1, NOT_RAW},
    {NAME("pair"), KIND_FLOAT, 0, 1, 0, 0, 0, 2, NOT_RAW},
    {NAME("ints"), KIND_INT64, 0, 0, 1, 1, 0, ANY_NUMBER, NOT_RAW},
    {NAME("floats"), KIND_FLOAT, 0, 0, 1, 1, 0, ANY_NUMBER, NOT_RAW},
    {NAME("text"), KIND_BYTES, 0, 1, 0, 1, 0, 1, NOT_RAW},
    {NAME("two"), KIND_BYTES, 0, 1, 1, 2, 0, 2, NOT_RAW},
    {NAME("words"), KIND_BYTES, 0, 0, 1, 2, 0, ANY_NUMBER, NOT_RAW},
    {NAME("raw"), KIND_BYTES, 0, 0, 0, 0, 0, 1, 4},
    {NAME("none"), KIND_FLOAT, 0, 0, 0, 0, 0, 0, NOT_RAW},
    {NAME("steps"), KIND_INT64, 1, 0, 0, 1, 0, 2, NOT_RAW},
    {NAME("frames"), KIND_FLOAT, 1, 0, 1, 2, 0, ANY_NUMBER, NOT_RAW},
    {NAME("tokens"), KIND_INT64, 1, 0, 1, 2, 0, ANY_NUMBER, NOT_RAW},
    {NAME("names"), KIND_BYTES, 1, 1, 0, 2, 0, 1, NOT_RAW},
    {NAME("tags"), KIND_BYTES, 1, 0, 1, 3, 0, ANY_NUMBER, NOT_RAW},
    {NAME("pixels"), KIND_BYTES, 1, 0, 0, 1, 0, 1, 3},
    {NAME("ключ"), KIND_BYTES, 0, 0, 1, 2, 0, ANY_NUMBER, NOT_RAW},
};

/* What decoding some rows gave. */
typedef struct {
    int64_t codes[MAX_ROWS];
    int64_t counts[NUM_FIELDS * MAX_LEVELS * MAX_ROWS];
    int64_t sizes[MAX_ENTRIES];
    uint8_t *arrays[MAX_ENTRIES];
    int num_arrays;
} outcome;

/* The fields that the flags choose, so that what is required in one input may be missing in another. */
static schema choose_fields(uint8_t flags, field *chosen)
{
    schema wanted = {.fields = chosen, .is_sequence = flags & 1};
    for (int i = 0; i < NUM_FIELDS; i++) {
        int is_required = all_fields[i].raw_bytes == 4 || all_fields[i].num_values == 0;
        if ((all_fields[i].in_lists && !wanted.is_sequence) || (is_required && !(flags & 2)) || (flags & 4 && i % 2))
            continue;
        chosen[wanted.num_fields] = all_fields[i];
        chosen[wanted.num_fields++].first_level = wanted.num_levels;
        wanted.num_levels += all_fields[i].num_levels;
    }
    return wanted;
}

/* Rows that the caller would fill have no entries here. */
static void clear_left_out(const schema *wanted, const place *places, int64_t count, outcome *result)
{
    for (int64_t row = 0; row < count; row++)
        for (int i = 0; i < wanted->num_fields; i++) {
            const field *f = &wanted->fields[i];
            int is_missing = places[row * wanted->num_fields + i].start == MISSING_START;
            if (result->codes[row] == ROW_ODD || is_missing)
                for (int level = 0; level < f->num_levels; level++)
                    result->counts[(f->first_level + level) * count + row] = 0;
        }
}

static uint8_t *take_array(outcome *result, int64_t bytes)
{
    result->sizes[result->num_arrays] = bytes;
    return result->arrays[result->num_arrays++] = calloc(1, (size_t)bytes);
}

static void decode(const schema *wanted, const payload *payloads, int64_t count, outcome *result)
{
    place *places = calloc((size_t)count * (size_t)wanted->num_fields, sizeof(place));
    column columns[NUM_FIELDS] = {0};
    result->num_arrays = 0;
    CHECK(locate_values(wanted, payloads, count, places, result->counts, result->codes) == 0);
    clear_left_out(wanted, places, count, result);
    for (int i = 0; i < wanted->num_fields; i++) {
        const field *f = &wanted->fields[i];
        int64_t items = count;
        for (int level = 0; level < f->num_levels; level++) {
            columns[i].lengths[level] = take_array(result, items * 8);
            items = 0;
            for (int64_t row = 0; row < count; row++)
                items += result->counts[(f->first_level + level) * count + row];
        }
        columns[i].values = take_array(result, items * item_bytes(f));
    }
    CHECK(decode_values(wanted, payloads, count, places, result->counts, result->codes, columns, NULL) == -1);
    free(places);
}

static void drop(outcome *result)
{
    for (int i = 0; i < result->num_arrays; i++)
        free(result->arrays[i]);
}

static int split_input(const uint8_t *p, const uint8_t *end, payload *payloads)
{
    int count = 0;
    while (end - p >= 2 && count < MAX_ROWS) {
        int64_t bytes = p[0] | p[1] << 8;
        p += 2;
        bytes = bytes < end - p ? bytes : end - p;
        uint8_t *copy = malloc((size_t)bytes); /* of its own size: a read beyond it is seen */
        memcpy(copy, p, (size_t)bytes);
        payloads[count].data = copy;
        payloads[count++].bytes = bytes;
        p += bytes;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (!bytes)
        return 0;
    field chosen[NUM_FIELDS];
    payload payloads[MAX_ROWS];
    outcome together, alone;
    int64_t places[MAX_ENTRIES] = {0}; /* [array]: where the next row is in it */

    schema wanted = choose_fields(input[0], chosen);
    int count = split_input(input + 1, input + bytes, payloads);
    decode(&wanted, payloads, count, &together);
    for (int row = 0; row < count; row++) {
        decode(&wanted, &payloads[row], 1, &alone);
        CHECK(alone.codes[0] == together.codes[row]);
        for (int i = 0; i < alone.num_arrays; i++) {
            CHECK(alone.sizes[i] <= together.sizes[i] - places[i]);
            CHECK(memcmp(alone.arrays[i], together.arrays[i] + places[i], (size_t)alone.sizes[i]) == 0);
            places[i] += alone.sizes[i];
        }
        drop(&alone);
    }
    for (int i = 0; i < together.num_arrays; i++)
        CHECK(places[i] == together.sizes[i]);
    drop(&together);
    for (int row = 0; row < count; row++)
        free((void *)payloads[row].data);
    return 0;
}
