/* Take and check where the rows of dense columns go.
 *
 *     targets = (buffers, buffer, position, offsets)
 *
 * buffers   tuple of writable bytes-like: the memory of some batches
 * buffer    int64 (rows,): in which of them a row goes
 * position  int64 (rows,): which row of it that is
 * offsets   int64 (fields,): the byte of a buffer at which the rows of a dense field begin
 *
 * Rule: every row of every field is within its buffer, and no buffer is one of `results`, before the first row is written.
 */

#include "targets.h"

static int refuse(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

Py_ssize_t count_target_buffers(PyObject *targets)
{
    int has_buffers = PyTuple_Check(targets) && PyTuple_Size(targets) == 4 && PyTuple_Check(PyTuple_GetItem(targets, 0));
    return has_buffers ? PyTuple_Size(PyTuple_GetItem(targets, 0)) + 3 : 0;
}

/* The first row after all that are used, and the size of the smallest buffer, where every row is in one of the buffers. */
static int take_rows(row_target *rows, const Py_buffer *views, Py_ssize_t num_buffers, const int64_t *which,
                     const int64_t *position, Py_ssize_t count, int64_t *stop)
{
    *stop = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        if (which[row] < 0 || which[row] >= num_buffers)
            return refuse("a target is in no buffer");
        if (position[row] < 0 || position[row] == INT64_MAX)
            return refuse("a target is at no row");
        rows[row].start = start_of(&views[which[row]]);
        rows[row].position = position[row];
        if (position[row] >= *stop)
            *stop = position[row] + 1;
    }
    return 0;
}

static int check_fields(const schema *wanted, const int64_t *offsets, int64_t stop, int64_t smallest)
{
    for (int i = 0; i < wanted->num_fields && stop; i++) {
        if (wanted->fields[i].num_levels)
            continue;
        int64_t item = item_bytes(&wanted->fields[i]);
        if (offsets[i] < 0 || offsets[i] > smallest || (item && stop > (smallest - offsets[i]) / item))
            return refuse("a target leaves its buffer");
    }
    return 0;
}

/* Hold the buffers. Returns the size of the smallest, or -1 with an exception set. */
static int64_t hold_targets(held_buffers *held, PyObject *buffers, const Py_buffer *results, int num_results)
{
    int64_t smallest = INT64_MAX;
    for (Py_ssize_t i = 0; i < PyTuple_Size(buffers); i++) {
        const Py_buffer *view = hold_bytes(held, PyTuple_GetItem(buffers, i), 1);
        if (!view)
            return -1;
        for (int r = 0; r < num_results; r++)
            if (overlap(view, &results[r]))
                return refuse("a target lies where the other pass left its results");
        smallest = view->len < smallest ? view->len : smallest;
    }
    return smallest;
}

row_target *take_targets(held_buffers *held, PyObject *targets, const schema *wanted, column *columns, Py_ssize_t count,
                         const Py_buffer *results, int num_results)
{
    Py_ssize_t num_buffers = count_target_buffers(targets) - 3;
    const Py_buffer *views = held->views + held->count;
    const int64_t *which, *position, *offsets;
    int64_t stop, smallest;
    if (num_buffers < 0) {
        PyErr_SetString(PyExc_TypeError, "targets: expected (buffers, buffer, position, offsets)");
        return NULL;
    }
    if ((smallest = hold_targets(held, PyTuple_GetItem(targets, 0), results, num_results)) < 0 || !(which = hold_ints(held, PyTuple_GetItem(targets, 1), 0, "buffer", count, NULL))
        || !(position = hold_ints(held, PyTuple_GetItem(targets, 2), 0, "position", count, NULL))
        || !(offsets = hold_ints(held, PyTuple_GetItem(targets, 3), 0, "offsets", wanted->num_fields, NULL)))
        return NULL;
    row_target *rows = PyMem_Calloc((size_t)count + 1, sizeof(row_target));
    if (!rows) {
        PyErr_NoMemory();
        return NULL;
    }
    if (take_rows(rows, views, num_buffers, which, position, count, &stop) < 0
        || check_fields(wanted, offsets, stop, smallest) < 0) {
        PyMem_Free(rows);
        return NULL;
    }
    for (int i = 0; i < wanted->num_fields; i++)
        columns[i].offset = offsets[i];
    return rows;
}
