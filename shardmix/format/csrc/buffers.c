/* Hold the memory behind Python arguments while C works on it without the GIL.
 *
 * Rule 1: an argument is an object with a buffer, never an address.
 * Rule 2: a buffer that is held is contiguous, of the expected type, aligned where it holds numbers, and writable where it is
 * written.
 */

#include "buffers.h"

int reserve_buffers(held_buffers *held, Py_ssize_t room)
{
    held->count = 0;
    held->room = room;
    held->views = PyMem_Calloc((size_t)room, sizeof(Py_buffer));
    if (held->views)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static Py_buffer *hold(held_buffers *held, PyObject *object, int flags)
{
    if (held->count == held->room) {
        PyErr_SetString(PyExc_SystemError, "more buffers than were reserved");
        return NULL;
    }
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return NULL;
    held->count++;
    return view;
}

Py_buffer *hold_bytes(held_buffers *held, PyObject *object, int writable)
{
    return hold(held, object, writable ? PyBUF_SIMPLE | PyBUF_WRITABLE : PyBUF_SIMPLE);
}

static int holds_int64(const Py_buffer *view)
{
    const char *format = view->format;
    if (view->itemsize != 8 || !format)
        return 0;
    if (*format == '<' || *format == '=' || *format == '@')
        format++;
    return (*format == 'l' || *format == 'q') && format[1] == '\0';
}

int64_t *hold_ints(held_buffers *held, PyObject *object, int writable, const char *name, Py_ssize_t expected,
                   Py_ssize_t *count)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    Py_buffer *view = hold(held, object, flags);
    if (!view)
        return NULL;
    if (!holds_int64(view)) {
        PyErr_Format(PyExc_TypeError, "%s: expected an int64 array", name);
        return NULL;
    }
    if ((uintptr_t)view->buf % sizeof(int64_t)) {
        PyErr_Format(PyExc_ValueError, "%s: expected an aligned array", name);
        return NULL;
    }
    Py_ssize_t numbers = view->len / 8;
    if (expected >= 0 && numbers != expected) {
        PyErr_Format(PyExc_ValueError, "%s: got %zd numbers, expected %zd", name, numbers, expected);
        return NULL;
    }
    if (count)
        *count = numbers;
    return start_of(view);
}

void drop_buffers(held_buffers *held)
{
    while (held->count)
        PyBuffer_Release(&held->views[--held->count]);
    PyMem_Free(held->views);
    held->views = NULL;
}
