/* Cut a buffer into bytes objects. Python twin: cut_bytes in shardmix/format/spans.py.
 *
 * Rule 1: all lengths are checked before the first object is made.
 * Rule 2: all objects are made first, then filled at once: without the GIL where that takes long.
 */

#include "bytes.h"

#include <string.h>

#define MANY_BYTES (1 << 18)

/* The sum of some lengths, or -1 where one is negative or they are more than `room`. */
static int64_t sum_lengths(const int64_t *length, Py_ssize_t count, int64_t room)
{
    int64_t sum = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (length[i] < 0 || length[i] > room - sum)
            return -1;
        sum += length[i];
    }
    return sum;
}

typedef struct {
    PyObject *object;
    uint8_t *data;
} value;

/* Objects of any content. Returns how many could be made. */
static Py_ssize_t make_values(value *values, const int64_t *length, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i].object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length[i]);
        if (!values[i].object)
            return i;
        values[i].data = (uint8_t *)PyBytes_AsString(values[i].object);
    }
    return count;
}

static void fill_values(const value *values, const uint8_t *data, const int64_t *length, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; data += length[i], i++) {
        if (length[i])
            memcpy(values[i].data, data, (size_t)length[i]);
    }
}

/* A list that takes the objects over, or NULL with an exception set. */
static PyObject *list_values(value *values, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyList_SetItem(list, i, values[i].object);
        values[i].object = NULL;
    }
    return list;
}

/* cut_bytes(data, length) -> list of bytes: the spans of so many bytes, which lie end to end */
PyObject *py_cut_bytes(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data, *lengths, *list = NULL;
    if (!PyArg_ParseTuple(args, "OO:cut_bytes", &data, &lengths))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 2) < 0)
        return NULL;
    Py_ssize_t count = 0;
    Py_buffer *view = hold_bytes(&held, data, 0);
    int64_t *length = view ? hold_ints(&held, lengths, 0, "length", -1, &count) : NULL;
    int64_t sum = length ? sum_lengths(length, count, view->len) : 0;
    if (sum < 0)
        PyErr_SetString(PyExc_ValueError, "cut_bytes: the lengths are not those of the data");
    value *values = length && sum >= 0 ? PyMem_Calloc((size_t)count + 1, sizeof(value)) : NULL;
    if (length && sum >= 0 && !values)
        PyErr_NoMemory();
    if (values && make_values(values, length, count) == count) {
        if (sum >= MANY_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            fill_values(values, start_of(view), length, count);
            Py_END_ALLOW_THREADS
        } else {
            fill_values(values, start_of(view), length, count);
        }
        list = list_values(values, count);
    }
    for (Py_ssize_t i = 0; values && i < count; i++)
        Py_XDECREF(values[i].object);
    PyMem_Free(values);
    drop_buffers(&held);
    return list;
}
