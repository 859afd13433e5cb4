/* Take and check the arguments of the two passes of decoding.
 *
 *     count_values(buffers, buffer, start, length, names, fields, is_sequence, places, counts, codes)
 *     decode_examples(…the same…, outputs, targets) -> the first row that was changed between the passes, or -1
 *     decode_dense(…the same…, outputs, targets) -> as decode_examples; both passes in one call, for fields without levels
 *
 * buffers  tuple of bytes-like; buffer, start, length  int64 (rows,): where the payloads are, as in RecordBlock
 * names    the names of the fields, end to end; fields  int64 (fields, FIELD_NUMBERS), see take_field
 * places   uint32 (rows, fields, 2); counts  int64 (levels of all fields, rows); codes  int64 (rows,)
 * outputs  tuple, for each field: one int64 array a level, outermost first, and the values
 * targets  None; or where the rows of dense fields go (targets.c), which then have no outputs
 *
 * Rule: nothing is written before everything was checked, so that the passes need to trust no one.
 */

#include "decode_module.h"
#include "example.h"
#include "targets.h"

#define FIELD_NUMBERS 8
#define NUM_RESULTS 3
#define LARGEST_ITEM ((int64_t)1 << 40)

/* All that both passes work on. Begin with {0}, end with drop_call on every path. */
typedef struct {
    held_buffers held;
    schema wanted;
    payload *payloads;
    Py_ssize_t count;
    place *places;
    int64_t *counts;
    int64_t *codes;
    const Py_buffer *results; /* the buffers of these three */
    column *columns;
    row_target *targets;
} call;

static void drop_call(call *at)
{
    drop_buffers(&at->held);
    PyMem_Free(at->wanted.fields);
    PyMem_Free(at->payloads);
    PyMem_Free(at->columns);
    PyMem_Free(at->targets);
}

static int refuse(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

/* An array of our own; never of no bytes, so that NULL is always a failure. */
static void *take_memory(Py_ssize_t count, size_t size)
{
    void *memory = PyMem_Calloc((size_t)count + 1, size);
    if (!memory)
        PyErr_NoMemory();
    return memory;
}

static int take_payloads(call *at, PyObject *buffers, PyObject *buffer, PyObject *start, PyObject *length)
{
    Py_ssize_t num_buffers = PyTuple_Size(buffers);
    const int64_t *which, *from, *bytes;
    const Py_buffer *views = at->held.views + at->held.count;

    for (Py_ssize_t i = 0; i < num_buffers; i++)
        if (!hold_bytes(&at->held, PyTuple_GetItem(buffers, i), 0))
            return -1;
    if (!(which = hold_ints(&at->held, buffer, 0, "buffer", -1, &at->count))
        || !(from = hold_ints(&at->held, start, 0, "start", at->count, NULL))
        || !(bytes = hold_ints(&at->held, length, 0, "length", at->count, NULL))
        || !(at->payloads = take_memory(at->count, sizeof(payload))))
        return -1;
    for (Py_ssize_t row = 0; row < at->count; row++) {
        if (which[row] < 0 || which[row] >= num_buffers)
            return refuse("a row is in no buffer");
        const Py_buffer *view = &views[which[row]];
        if (from[row] < 0 || bytes[row] < 0 || bytes[row] > view->len || from[row] > view->len - bytes[row])
            return refuse("a row leaves its buffer");
        at->payloads[row].data = (const uint8_t *)start_of(view) + from[row];
        at->payloads[row].bytes = bytes[row];
    }
    return 0;
}

static int take_field(field *f, const int64_t *numbers, const Py_buffer *names)
{
    int64_t name_start = numbers[0], name_bytes = numbers[1];
    if (name_start < 0 || name_bytes < 0 || name_bytes > names->len || name_start > names->len - name_bytes)
        return refuse("a name leaves the names");
    if (name_bytes > MAX_PAYLOAD || numbers[2] < KIND_BYTES || numbers[2] > KIND_INT64)
        return refuse("a field of unknown kind");
    if (numbers[6] < ANY_NUMBER || numbers[6] > LARGEST_ITEM || numbers[7] < NOT_RAW || numbers[7] > LARGEST_ITEM)
        return refuse("a field of a size that cannot be");
    f->name = (const uint8_t *)start_of(names) + name_start;
    f->name_bytes = (uint32_t)name_bytes;
    f->kind = (int)numbers[2];
    f->in_lists = numbers[3] != 0;
    f->has_default = numbers[4] != 0;
    f->counts_values = numbers[5] != 0;
    f->num_values = numbers[6];
    f->raw_bytes = numbers[7];
    int is_raw = f->raw_bytes != NOT_RAW;
    if ((f->num_values == ANY_NUMBER && !f->counts_values) || (is_raw && (f->kind != KIND_BYTES || f->counts_values)))
        return refuse("a field without a level for its values");
    f->num_levels = f->in_lists + f->counts_values + (f->kind == KIND_BYTES && !is_raw);
    return 0;
}

static int take_schema(call *at, PyObject *names, PyObject *fields, int is_sequence)
{
    Py_ssize_t numbers;
    const Py_buffer *text = hold_bytes(&at->held, names, 0);
    const int64_t *rows = text ? hold_ints(&at->held, fields, 0, "fields", -1, &numbers) : NULL;
    if (!rows)
        return -1;
    Py_ssize_t num_fields = numbers / FIELD_NUMBERS;
    if (numbers % FIELD_NUMBERS || num_fields > 1 << 20)
        return refuse("fields of another size");
    at->wanted.is_sequence = is_sequence;
    at->wanted.num_fields = (int)num_fields;
    at->wanted.fields = take_memory(num_fields, sizeof(field));
    if (!at->wanted.fields)
        return -1;
    for (Py_ssize_t i = 0; i < num_fields; i++) {
        field *f = &at->wanted.fields[i];
        if (take_field(f, rows + i * FIELD_NUMBERS, text) < 0)
            return -1;
        f->first_level = at->wanted.num_levels;
        at->wanted.num_levels += f->num_levels;
    }
    return 0;
}

static int take_results(call *at, PyObject *places, PyObject *counts, PyObject *codes)
{
    const Py_buffer *view = at->results = hold_bytes(&at->held, places, 1);
    if (!view)
        return -1;
    Py_ssize_t row_bytes = at->wanted.num_fields * (Py_ssize_t)sizeof(place);
    if ((uintptr_t)view->buf % sizeof(uint32_t) || view->len != at->count * row_bytes)
        return refuse("places of another size");
    at->places = view->buf;
    at->counts = hold_ints(&at->held, counts, 1, "counts", at->wanted.num_levels * at->count, NULL);
    at->codes = at->counts ? hold_ints(&at->held, codes, 1, "codes", at->count, NULL) : NULL;
    return at->codes ? 0 : -1;
}

/* What both passes take, and `outputs` and `targets` unless they are NULL: 0, or -1 with an exception set. */
static int take_call(call *at, PyObject *args, PyObject **outputs, PyObject **targets)
{
    PyObject *buffers, *buffer, *start, *length, *names, *fields, *places, *counts, *codes;
    int is_sequence;
    const char *format = outputs ? "O!OOOOOpOOOO!O" : "O!OOOOOpOOO";
    if (!PyArg_ParseTuple(args, format, &PyTuple_Type, &buffers, &buffer, &start, &length, &names, &fields, &is_sequence,
                          &places, &counts, &codes, &PyTuple_Type, outputs, targets))
        return -1;
    Py_ssize_t room = PyTuple_Size(buffers) + 8;
    if (outputs)
        room += PyTuple_Size(*outputs) + count_target_buffers(*targets);
    if (reserve_buffers(&at->held, room) < 0 || take_payloads(at, buffers, buffer, start, length) < 0
        || take_schema(at, names, fields, is_sequence) < 0)
        return -1;
    return take_results(at, places, counts, codes);
}

PyObject *py_count_values(PyObject *module, PyObject *args)
{
    (void)module;
    call at = {0};
    int status = take_call(&at, args, NULL, NULL);
    if (status == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = locate_values(&at.wanted, at.payloads, at.count, at.places, at.counts, at.codes);
        Py_END_ALLOW_THREADS
        if (status < 0)
            PyErr_NoMemory();
    }
    drop_call(&at);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* The sum of a level's counts, or -1 where one is negative or the sum is no int64. */
static int64_t sum_counts(const int64_t *counts, Py_ssize_t count)
{
    int64_t sum = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        if (counts[row] < 0 || counts[row] > INT64_MAX - sum)
            return -1;
        sum += counts[row];
    }
    return sum;
}

/* Hold one output that has to be of `items` items. */
static uint8_t *take_output(call *at, PyObject *output, int64_t items, int64_t bytes)
{
    const Py_buffer *view = hold_bytes(&at->held, output, 1);
    if (!view)
        return NULL;
    int fits = bytes ? view->len % bytes == 0 && view->len / bytes == items : view->len == 0;
    if (items < 0 || !fits) {
        refuse("an output of another size");
        return NULL;
    }
    for (int i = 0; i < NUM_RESULTS; i++)
        if (overlap(view, &at->results[i])) {
            refuse("an output lies where the other pass left its results");
            return NULL;
        }
    return start_of(view);
}

static int take_columns(call *at, PyObject *outputs, int has_targets)
{
    Py_ssize_t next = 0, expected = at->wanted.num_levels;
    for (int i = 0; i < at->wanted.num_fields; i++)
        expected += !has_targets || at->wanted.fields[i].num_levels;
    if (PyTuple_Size(outputs) != expected)
        return refuse("more or fewer outputs than the fields have arrays");
    at->columns = take_memory(at->wanted.num_fields, sizeof(column));
    if (!at->columns)
        return -1;
    for (int i = 0; i < at->wanted.num_fields; i++) {
        const field *f = &at->wanted.fields[i];
        int64_t items = at->count;
        if (has_targets && !f->num_levels)
            continue;
        for (int level = 0; level < f->num_levels; level++) {
            at->columns[i].lengths[level] = take_output(at, PyTuple_GetItem(outputs, next++), items, 8);
            if (!at->columns[i].lengths[level])
                return -1;
            items = sum_counts(at->counts + (f->first_level + level) * at->count, at->count);
        }
        at->columns[i].values = take_output(at, PyTuple_GetItem(outputs, next++), items, item_bytes(f));
        if (!at->columns[i].values)
            return -1;
    }
    return 0;
}

static PyObject *decode_outputs(PyObject *args, int is_dense)
{
    call at = {0};
    PyObject *outputs, *targets;
    int64_t changed = -1;
    int status = take_call(&at, args, &outputs, &targets);
    if (status == 0 && is_dense && at.wanted.num_levels)
        status = refuse("a field with levels is not dense");
    if (status == 0)
        status = take_columns(&at, outputs, targets != Py_None);
    if (status == 0 && targets != Py_None) {
        at.targets = take_targets(&at.held, targets, &at.wanted, at.columns, at.count, at.results, NUM_RESULTS);
        status = at.targets ? 0 : -1;
    }
    if (status == 0) {
        Py_BEGIN_ALLOW_THREADS
        if (is_dense)
            changed = decode_dense_values(&at.wanted, at.payloads, at.count, at.places, at.codes, at.columns,
                                          at.targets);
        else
            changed = decode_values(&at.wanted, at.payloads, at.count, at.places, at.counts, at.codes, at.columns,
                                    at.targets);
        Py_END_ALLOW_THREADS
    }
    drop_call(&at);
    if (changed == NO_MEMORY)
        return PyErr_NoMemory();
    return status < 0 ? NULL : PyLong_FromLongLong(changed);
}

PyObject *py_decode_examples(PyObject *module, PyObject *args)
{
    (void)module;
    return decode_outputs(args, 0);
}

PyObject *py_decode_dense(PyObject *module, PyObject *args)
{
    (void)module;
    return decode_outputs(args, 1);
}
