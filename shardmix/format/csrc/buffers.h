/* Arguments as buffers; see buffers.c. */

#ifndef SHARDMIX_BUFFERS_H
#define SHARDMIX_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The buffers that a call holds. Begin with {0}, end with drop_buffers on every path. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
    Py_ssize_t room;
} held_buffers;

/* Make room for `room` buffers: views never move. -1 with an exception set when there is no memory. */
int reserve_buffers(held_buffers *held, Py_ssize_t room);

/* Hold one more contiguous buffer of bytes; NULL with an exception set when it is none. */
Py_buffer *hold_bytes(held_buffers *held, PyObject *object, int writable);

/* Hold an int64 array and say how many numbers it has; with `expected` >= 0 it must have as many. */
int64_t *hold_ints(held_buffers *held, PyObject *object, int writable, const char *name, Py_ssize_t expected,
                   Py_ssize_t *count);

/* Where a buffer begins; some of no bytes begin nowhere. */
static inline void *start_of(const Py_buffer *view)
{
    return view->buf ? view->buf : (void *)view;
}

/* Whether two buffers have a byte in common. */
static inline int overlap(const Py_buffer *a, const Py_buffer *b)
{
    uintptr_t first = (uintptr_t)a->buf, second = (uintptr_t)b->buf;
    if (!a->len || !b->len)
        return 0;
    return first < second ? second - first < (uintptr_t)a->len : first - second < (uintptr_t)b->len;
}

void drop_buffers(held_buffers *held);

#endif
