/* Put the rows of dense columns in their places: all columns of a batch in one call. Python twin: place_rows in
 * shardmix/format/spans.py.
 *
 * Rule 1: every position is checked before the first byte is written, and nothing that is read lies where it could be changed.
 * Rule 2: rows of one number are most of them, and are copied without a call.
 */

#include "rows.h"

#include "buffers.h"

#include <string.h>

typedef struct {
    int64_t *positions;
    Py_ssize_t count;
} part;

/* Fixed sizes let the compiler move a row in one instruction. */
#define PLACE(size)                                                         \
    for (Py_ssize_t i = 0; i < from->count; i++)                            \
        memcpy(out + from->positions[i] * (size), rows + i * (size), (size))

static void place(uint8_t *out, const uint8_t *rows, const part *from, Py_ssize_t row_bytes)
{
    if (row_bytes == 8)
        PLACE(8);
    else if (row_bytes == 4)
        PLACE(4);
    else if (row_bytes == 1)
        PLACE(1);
    else
        PLACE((size_t)row_bytes);
}

static int are_within(const part *from, int64_t num_rows)
{
    for (Py_ssize_t i = 0; i < from->count; i++)
        if (from->positions[i] < 0 || from->positions[i] >= num_rows)
            return 0;
    return 1;
}

/* Hold the positions of each part. */
static int hold_parts(held_buffers *held, PyObject *positions, part *parts, Py_ssize_t num_parts)
{
    for (Py_ssize_t p = 0; p < num_parts; p++) {
        parts[p].positions = hold_ints(held, PyTuple_GetItem(positions, p), 0, "positions", -1, &parts[p].count);
        if (!parts[p].positions)
            return -1;
    }
    return 0;
}

/* Hold the columns: for each what it becomes, then its rows of each part. Checks their sizes. */
static int hold_columns(held_buffers *held, PyObject *sources, PyObject *outs, const part *parts, Py_ssize_t num_parts,
                        Py_ssize_t num_rows)
{
    for (Py_ssize_t c = 0; c < PyTuple_Size(outs); c++) {
        Py_buffer *out = hold_bytes(held, PyTuple_GetItem(outs, c), 1);
        if (!out)
            return -1;
        Py_ssize_t row_bytes = num_rows ? out->len / num_rows : 0;
        int fits = row_bytes * num_rows == out->len;
        for (Py_ssize_t p = 0; p < num_parts; p++) {
            Py_buffer *rows = hold_bytes(held, PyTuple_GetItem(sources, c * num_parts + p), 0);
            if (!rows)
                return -1;
            fits = fits && rows->len == row_bytes * parts[p].count;
        }
        if (!fits) {
            PyErr_Format(PyExc_ValueError, "place_rows: the arrays of column %zd do not fit the positions", c);
            return -1;
        }
    }
    return 0;
}

/* Whether a buffer overlaps what one of the columns becomes, which begins and ends within `all`. */
static int is_written(const Py_buffer *read, const Py_buffer *all, const Py_buffer *columns, Py_ssize_t num_columns,
                      Py_ssize_t stride)
{
    if (overlap(read, all))
        for (Py_ssize_t c = 0; c < num_columns; c++)
            if (overlap(read, &columns[c * stride]))
                return 1;
    return 0;
}

/* Refuse memory that is both read and written. What is written is mostly one piece, far from the rest: look there first. */
static int check_apart(const held_buffers *held, Py_ssize_t num_parts, Py_ssize_t num_columns)
{
    const Py_buffer *columns = held->views + num_parts;
    Py_ssize_t stride = num_parts + 1;
    uintptr_t first = UINTPTR_MAX, end = 0;
    for (Py_ssize_t c = 0; c < num_columns; c++) {
        uintptr_t begin = (uintptr_t)columns[c * stride].buf, bytes = (uintptr_t)columns[c * stride].len;
        if (bytes && begin < first)
            first = begin;
        if (bytes && begin + bytes > end)
            end = begin + bytes;
    }
    Py_buffer all = {.buf = (void *)first, .len = first < end ? (Py_ssize_t)(end - first) : 0};
    for (Py_ssize_t i = 0; i < held->count; i++) {
        int is_column = i >= num_parts && (i - num_parts) % stride == 0;
        if (!is_column && is_written(&held->views[i], &all, columns, num_columns, stride)) {
            PyErr_SetString(PyExc_ValueError, "place_rows: what is read lies where it would be written");
            return -1;
        }
    }
    return 0;
}

/* place_rows(sources, positions, outs, num_rows) -> whether all positions are within */
PyObject *py_place_rows(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *sources, *positions, *outs;
    Py_ssize_t num_rows;
    if (!PyArg_ParseTuple(args, "O!O!O!n:place_rows", &PyTuple_Type, &sources, &PyTuple_Type, &positions, &PyTuple_Type,
                          &outs, &num_rows))
        return NULL;
    Py_ssize_t num_parts = PyTuple_Size(positions), num_columns = PyTuple_Size(outs);
    if (num_rows < 0 || PyTuple_Size(sources) != num_parts * num_columns) {
        PyErr_SetString(PyExc_ValueError, "place_rows: expected one source for each part of each column");
        return NULL;
    }
    held_buffers held;
    if (reserve_buffers(&held, num_parts + num_columns * (num_parts + 1)) < 0)
        return NULL;
    part *parts = PyMem_Calloc((size_t)num_parts + 1, sizeof(part));
    int within = 1, ok = parts != NULL;
    if (!ok)
        PyErr_NoMemory();
    ok = ok && hold_parts(&held, positions, parts, num_parts) == 0
         && hold_columns(&held, sources, outs, parts, num_parts, num_rows) == 0
         && check_apart(&held, num_parts, num_columns) == 0;
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t p = 0; p < num_parts; p++)
            within = within && are_within(&parts[p], num_rows);
        const Py_buffer *view = held.views + num_parts;
        for (Py_ssize_t c = 0; within && c < num_columns; c++, view += num_parts + 1)
            for (Py_ssize_t p = 0; p < num_parts; p++)
                if (parts[p].count)
                    place(view[0].buf, view[1 + p].buf, &parts[p], num_rows ? view[0].len / num_rows : 0);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(parts);
    drop_buffers(&held);
    return ok ? PyBool_FromLong(within) : NULL;
}
