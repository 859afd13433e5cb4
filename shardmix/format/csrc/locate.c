/* Pass 1: verify payloads, and find and count what the schema asks for.
 *
 * Rule 1: a payload is verified whole, the features that nobody asked for included: protobuf would refuse it whole.
 * Rule 2: what is written in another way than the usual one makes the row odd, and so does what may be an error of the feature
 * (another kind, another number of values, missing): the Python twin decides, and has the text.
 * Rule 3: records resemble the one before. So a record's k-th key is first compared with the k-th key of that one, by the raw
 * bytes; only where they differ is the name looked up, and its UTF-8 checked.
 * Rule 4: of an entry that holds numbers even more is alike (resemble.h).
 *
 * The usual way: Example { features }, SequenceExample { context, feature_lists } once each; map entries of key and value in
 * this order; each asked-for key once; one kind a Feature; numbers packed in one piece.
 */

#include <stdlib.h>

#include "feature.h"
#include "locator.h"
#include "names.h"
#include "resemble.h"

#define ROWS_AHEAD 4
#define BYTES_AHEAD 1024

/* What a list holds. */
typedef struct {
    int64_t values;
    int64_t bytes; /* of the values of a BytesList */
} tally;

/* Count the values of one kind, verifying them. -1: odd. */
static int tally_list(const value_list *list, tally *sum)
{
    if (list->kind == KIND_INT64) {
        int64_t values = count_varints(list->start, list->end);
        sum->values += values;
        return values < 0 ? -1 : 0;
    }
    if (list->kind == KIND_FLOAT) {
        sum->values += (list->end - list->start) / 4;
        return (list->end - list->start) % 4 ? -1 : 0;
    }
    for (const uint8_t *p = list->start; p != list->end;) {
        uint32_t bytes;
        p = read_value(p, list->end, &bytes);
        if (!p)
            return -1;
        p += bytes;
        sum->values++;
        sum->bytes += bytes;
    }
    return 0;
}

/* Whether a list is what its field declares. */
static int is_declared(const field *f, int kind, const tally *sum)
{
    if (kind != f->kind)
        return 0;
    if (f->raw_bytes != NOT_RAW)
        return sum->values == 1 && sum->bytes == f->raw_bytes;
    return f->num_values == ANY_NUMBER || sum->values == f->num_values;
}

static void put_counts(const locator *at, const field *f, int64_t steps, const tally *sum)
{
    int64_t *counts = at->counts + f->first_level * at->count + at->row;
    if (f->in_lists) {
        *counts = steps;
        counts += at->count;
    }
    if (f->counts_values) {
        *counts = sum->values;
        counts += at->count;
    }
    if (f->kind == KIND_BYTES && f->raw_bytes == NOT_RAW)
        *counts = sum->bytes;
}

/* A field that the record does not have: -1 where that may be an error. */
static int put_missing(const locator *at, int number)
{
    static const tally nothing = {0, 0};
    const field *f = &at->wanted->fields[number];

    at->places[number].bytes = 0;
    if (f->has_default && !f->in_lists) {
        at->places[number].start = MISSING_START;
        return 0;
    }
    at->places[number].start = 0;
    put_counts(at, f, 0, &nothing);
    return f->in_lists || (f->num_values == ANY_NUMBER && f->raw_bytes == NOT_RAW) ? 0 : -1;
}

/* The value of a map entry of the context. `number` is -1 where nobody asked for it. */
static int locate_feature(locator *at, const uint8_t *p, const uint8_t *end, int number)
{
    value_list list;
    tally sum = {0, 0};

    if (read_feature(p, end, &list) < 0 || tally_list(&list, &sum) < 0)
        return -1;
    if (number < 0)
        return 0;
    if (list.kind == KIND_UNSET)
        return put_missing(at, number);
    const field *f = &at->wanted->fields[number];
    if (!is_declared(f, list.kind, &sum))
        return -1;
    put_place(at, number, list.start, list.end);
    put_counts(at, f, 0, &sum);
    return 0;
}

/* The value of a map entry of the feature lists. */
static int locate_steps(locator *at, const uint8_t *start, const uint8_t *end, int number)
{
    const field *f = number < 0 ? NULL : &at->wanted->fields[number];
    tally all = {0, 0};
    int64_t steps = 0;

    for (const uint8_t *p = start; p != end; steps++) {
        value_list list;
        tally sum = {0, 0};
        p = read_step(p, end, &list);
        if (!p || tally_list(&list, &sum) < 0)
            return -1;
        int is_none = list.kind == KIND_UNSET && f && f->num_values == ANY_NUMBER && f->raw_bytes == NOT_RAW;
        if (f && !is_none && !is_declared(f, list.kind, &sum))
            return -1;
        all.values += sum.values;
        all.bytes += sum.bytes;
    }
    if (f) {
        put_place(at, number, start, end);
        put_counts(at, f, steps, &all);
    }
    return 0;
}

/* The field of a key, or -1 where nobody asked for it; -2 when the key is no UTF-8. */
static int find_field(const locator *at, key_order *order, guess *g, const uint8_t *key, uint32_t bytes, int in_lists)
{
    int is_known = g && order->next <= order->known;

    if (is_known && g->bytes == bytes && same_bytes(g->key, key, bytes)) {
        g->key = key;
        return g->field;
    }
    int found = find_name(&at->names, key, bytes);
    if (found < 0 && !is_utf8(key, key + bytes))
        return -2;
    if (found >= 0 && at->wanted->fields[found].in_lists != in_lists)
        found = -1;
    if (g) {
        g->key = key;
        g->bytes = bytes;
        g->field = found;
        memset(g->patterns, 0, sizeof(g->patterns));
        if (!is_known)
            order->known = order->next;
    }
    return found;
}

/* A map of features, or of feature lists. */
static int locate_map(locator *at, const uint8_t *p, const uint8_t *end, int in_lists)
{
    key_order *order = in_lists ? &at->lists : &at->context;
    order->next = 0;
    while (p != end) {
        uint32_t bytes;
        const uint8_t *entry = p, *entry_end = in_lists ? NULL : resemble(at, p, end);
        if (entry_end) {
            p = entry_end;
            continue;
        }
        p = read_field(p, end, TAG_1, &bytes);
        if (!p)
            return -1;
        entry_end = p + bytes;
        const uint8_t *key = read_field(p, entry_end, TAG_1, &bytes);
        if (!key)
            return -1;
        guess *g = order->next < MAX_GUESSES ? &order->guesses[order->next++] : NULL;
        int number = find_field(at, order, g, key, bytes, in_lists);
        const uint8_t *value = read_field(key + bytes, entry_end, TAG_2, &bytes);
        if (number < -1 || !value || value + bytes != entry_end)
            return -1;
        if (number >= 0) {
            if (at->seen[number] == at->row)
                return -1;
            at->seen[number] = at->row;
        }
        if ((in_lists ? locate_steps : locate_feature)(at, value, entry_end, number) < 0)
            return -1;
        if (!in_lists)
            remember(at, g, entry, value, entry_end, end, number);
        p = entry_end;
    }
    return 0;
}

static int locate_row(locator *at, const payload *source)
{
    const uint8_t *p = source->data, *end = p + source->bytes;
    int seen = 0;

    while (p != end) {
        uint32_t bytes;
        int part = *p == TAG_1 ? 1 : *p == TAG_2 && at->wanted->is_sequence ? 2 : 0;
        p = read_length(p + 1, end, &bytes);
        if (!p || !part || seen & part || locate_map(at, p, p + bytes, part == 2) < 0)
            return -1;
        seen |= part;
        p += bytes;
    }
    for (int number = 0; number < at->wanted->num_fields; number++)
        if (at->seen[number] != at->row && put_missing(at, number) < 0)
            return -1;
    return 0;
}

/* Ask for the beginning of a payload: records lie in no order, so the processor cannot know which is next. */
static inline void fetch_ahead(const payload *source)
{
#if defined(__GNUC__) || defined(__clang__)
    int64_t bytes = source->bytes < BYTES_AHEAD ? source->bytes : BYTES_AHEAD;
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(source->data + at);
#else
    (void)source;
#endif
}

static void locate_rows(locator *at, const payload *payloads, place *places, int64_t *codes, int64_t first, int64_t stop)
{
    for (at->row = first; at->row < stop; at->row++) {
        if (at->row + ROWS_AHEAD < at->count)
            fetch_ahead(&payloads[at->row + ROWS_AHEAD]);
        at->payload = payloads[at->row].data;
        at->places = places + at->row * at->wanted->num_fields;
        int is_odd = payloads[at->row].bytes > MAX_PAYLOAD || locate_row(at, &payloads[at->row]) < 0;
        codes[at->row] = is_odd ? ROW_ODD : ROW_USUAL;
    }
}

/* 0, or -1 when there is no memory; drop_locator either way. */
static int make_locator(locator *at)
{
    at->context.guesses = malloc(MAX_GUESSES * sizeof(guess));
    at->lists.guesses = malloc(MAX_GUESSES * sizeof(guess));
    at->seen = malloc(((size_t)at->wanted->num_fields + 1) * sizeof(int64_t));
    if (!at->context.guesses || !at->lists.guesses || !at->seen || build_names(&at->names, at->wanted) < 0)
        return -1;
    for (int number = 0; number < at->wanted->num_fields; number++)
        at->seen[number] = -1;
    at->has_names = 1;
    return 0;
}

static void drop_locator(locator *at)
{
    if (at->has_names)
        drop_names(&at->names);
    free(at->context.guesses);
    free(at->lists.guesses);
    free(at->seen);
}

int locate_values(const schema *wanted, const payload *payloads, int64_t count, place *places, int64_t *counts,
                  int64_t *codes)
{
    locator at = {.wanted = wanted, .count = count, .counts = counts};
    int status = make_locator(&at);
    if (status == 0)
        locate_rows(&at, payloads, places, codes, 0, count);
    drop_locator(&at);
    return status;
}

int64_t decode_dense_values(const schema *wanted, const payload *payloads, int64_t count, place *places, int64_t *codes,
                            column *columns, const row_target *targets)
{
    locator at = {.wanted = wanted, .count = count};
    int64_t changed = make_locator(&at) < 0 ? NO_MEMORY : -1;
    for (int64_t first = 0; first < count && changed == -1; first += ROWS_AT_ONCE) {
        int64_t stop = count - first < ROWS_AT_ONCE ? count : first + ROWS_AT_ONCE;
        locate_rows(&at, payloads, places, codes, first, stop);
        changed = decode_some(wanted, payloads, count, places, NULL, codes, columns, targets, first, stop);
    }
    drop_locator(&at);
    return changed;
}
