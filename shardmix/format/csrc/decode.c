/* Pass 2: decode what pass 1 found, into the columns.
 *
 * Rule 1: column by column within a few rows: the payloads stay in the cache, and the branches of a column repeat themselves.
 * Rule 2: a row may write what its counts allow, no more: should a payload have been changed between the passes, the row is
 * reported, and nothing is written out of place.
 * Rule 3: what has targets is handed on, so large values are streamed there (stream.h).
 */

#include "feature.h"
#include "stream.h"

typedef struct {
    const schema *wanted;
    const payload *payloads;
    int64_t count;
    const place *places;
    const int64_t *counts;
    const int64_t *codes;
    const row_target *targets;
} decoder;

static int put_length(column *out, int level, int64_t length)
{
    if (out->lengths_left[level] == 0)
        return -1;
    out->lengths_left[level]--;
    memcpy(out->lengths[level], &length, 8);
    out->lengths[level] += 8;
    return 0;
}

static int put_bytes(column *out, const uint8_t *data, int64_t bytes)
{
    if (bytes > out->bytes_left)
        return -1;
    out->bytes_left -= bytes;
    if (out->is_streamed)
        copy_streaming(out->values, data, (size_t)bytes);
    else
        memcpy(out->values, data, (size_t)bytes);
    out->values += bytes;
    return 0;
}

static int64_t put_varints(column *out, const uint8_t *p, const uint8_t *end)
{
    int64_t count = decode_varints(p, end, out->values, out->bytes_left / 8, 0);
    if (count < 0)
        return -1;
    out->bytes_left -= count * 8;
    out->values += count * 8;
    return count;
}

/* The values of a BytesList. `level`: where their lengths go, or -1 for raw values, which have none. */
static int64_t put_values(column *out, const uint8_t *p, const uint8_t *end, int level)
{
    int64_t count = 0;
    for (; p != end; count++) {
        uint32_t bytes;
        p = read_value(p, end, &bytes);
        if (!p || (level >= 0 && put_length(out, level, bytes) < 0) || put_bytes(out, p, bytes) < 0)
            return -1;
        p += bytes;
    }
    return count;
}

/* The values of one list; their number goes to `level` where the field counts them. */
static int put_list(const field *f, column *out, const uint8_t *start, const uint8_t *end, int level)
{
    int64_t count;
    if (f->kind == KIND_INT64) {
        count = put_varints(out, start, end);
    } else if (f->kind == KIND_FLOAT) {
        count = (end - start) / 4;
        if (put_bytes(out, start, end - start) < 0)
            return -1;
    } else {
        count = put_values(out, start, end, f->raw_bytes == NOT_RAW ? level + f->counts_values : -1);
    }
    if (count < 0)
        return -1;
    return f->counts_values ? put_length(out, level, count) : 0;
}

static int put_steps(const field *f, column *out, const uint8_t *p, const uint8_t *end)
{
    int64_t steps = 0;
    for (; p != end; steps++) {
        value_list list;
        p = read_step(p, end, &list);
        if (!p || (list.kind != KIND_UNSET && list.kind != f->kind) || put_list(f, out, list.start, list.end, 1) < 0)
            return -1;
    }
    return put_length(out, 0, steps);
}

int64_t item_bytes(const field *f)
{
    if (f->raw_bytes != NOT_RAW)
        return f->raw_bytes;
    int64_t size = f->kind == KIND_INT64 ? 8 : f->kind == KIND_FLOAT ? 4 : 1;
    return f->counts_values || f->kind == KIND_BYTES ? size : size * f->num_values;
}

/* One row of a field with lengths, into the room that it has. -1 when it does not fill it exactly. */
static int decode_levels(const field *f, const payload *source, place where, column *out)
{
    if (where.start > source->bytes || where.bytes > source->bytes - where.start)
        return -1;
    const uint8_t *start = source->data + where.start, *end = start + where.bytes;
    if ((f->in_lists ? put_steps(f, out, start, end) : put_list(f, out, start, end, 0)) < 0)
        return -1;
    int64_t left = out->bytes_left;
    for (int level = 0; level < f->num_levels; level++)
        left |= out->lengths_left[level];
    return left ? -1 : 0;
}

/* A row's bytes, to where they stay. */
static inline void put_row(uint8_t *out, const uint8_t *from, int64_t bytes, int is_streamed)
{
    if (is_streamed)
        copy_streaming(out, from, (size_t)bytes);
    else
        memcpy(out, from, (size_t)bytes);
}

/* One row of a field whose rows are all of one size, `item` bytes. -1 when the payload was changed. */
static inline int decode_dense(const field *f, const payload *source, place where, uint8_t *out, int64_t item, int is_streamed)
{
    if (where.start > source->bytes || where.bytes > source->bytes - where.start)
        return -1;
    const uint8_t *start = source->data + where.start, *end = start + where.bytes;
    if (f->kind == KIND_FLOAT) {
        if (where.bytes != item)
            return -1;
        if (item == 4)
            memcpy(out, start, 4);
        else
            put_row(out, start, item, is_streamed);
        return 0;
    }
    if (f->kind == KIND_INT64) {
        if (f->num_values == 1 && where.bytes && where.bytes <= 8 && source->bytes - where.start >= 8)
            return decode_varint_word(load_u64(start), where.bytes, out);
        return decode_varints(start, end, out, f->num_values, is_streamed) == f->num_values ? 0 : -1;
    }
    uint32_t bytes;
    start = read_value(start, end, &bytes);
    if (!start || bytes != item)
        return -1;
    put_row(out, start, item, is_streamed);
    return 0;
}

/* Some rows of one field. `out` is left where the next row goes. Returns -1, or the first row that was changed. */
static int64_t decode_rows(const decoder *at, int number, int64_t first, int64_t stop, column *out)
{
    const field *f = &at->wanted->fields[number];
    const place *places = at->places + number;
    const int64_t *counts = f->num_levels ? at->counts + f->first_level * at->count : NULL;
    const int64_t item = item_bytes(f);
    const int is_streamed = at->targets && item >= STREAMED_BYTES;

    out->is_streamed = at->targets != NULL;
    for (int64_t row = first; row < stop; row++) {
        place where = places[row * at->wanted->num_fields];
        int is_left_out = at->codes[row] != ROW_USUAL || where.start == MISSING_START;
        if (!f->num_levels) {
            const row_target *target = at->targets ? at->targets + row : NULL;
            uint8_t *to = target ? target->start + out->offset + target->position * item : out->values;
            if (!is_left_out && decode_dense(f, &at->payloads[row], where, to, item, is_streamed) < 0)
                return row;
            out->values = to + item;
            continue;
        }
        column next = *out;
        for (int level = 0; level < f->num_levels; level++) {
            out->lengths_left[level] = count_entries(counts + row, at->count, level);
            next.lengths[level] += 8 * out->lengths_left[level];
        }
        out->bytes_left = count_entries(counts + row, at->count, f->num_levels) * item;
        next.values += out->bytes_left;
        if (is_left_out)
            memcpy(out->lengths[0], counts + row, 8);
        else if (decode_levels(f, &at->payloads[row], where, out) < 0)
            return row;
        *out = next;
    }
    return -1;
}

int64_t decode_some(const schema *wanted, const payload *payloads, int64_t count, const place *places,
                    const int64_t *counts, const int64_t *codes, column *columns, const row_target *targets, int64_t first,
                    int64_t stop)
{
    const decoder at = {wanted, payloads, count, places, counts, codes, targets};
    int64_t changed = -1;
    for (int number = 0; number < wanted->num_fields && changed < 0; number++)
        changed = decode_rows(&at, number, first, stop, &columns[number]);
    if (targets)
        finish_streams();
    return changed;
}

int64_t decode_values(const schema *wanted, const payload *payloads, int64_t count, const place *places,
                      const int64_t *counts, const int64_t *codes, column *columns, const row_target *targets)
{
    int64_t changed = -1;
    for (int64_t first = 0; first < count && changed < 0; first += ROWS_AT_ONCE) {
        int64_t stop = count - first < ROWS_AT_ONCE ? count : first + ROWS_AT_ONCE;
        changed = decode_some(wanted, payloads, count, places, counts, codes, columns, targets, first, stop);
    }
    return changed;
}
