/* Where the rows of dense columns go when they do not lie one after another; see targets.c. */

#ifndef SHARDMIX_TARGETS_H
#define SHARDMIX_TARGETS_H

#include "buffers.h"
#include "example.h"

/* How many buffers take_targets holds. */
Py_ssize_t count_target_buffers(PyObject *targets);

/* Read targets = (buffers, buffer, position, offsets) for `count` rows; the offsets go to the columns. `results`: buffers that none
 * may share memory with. Returns what is to be freed with PyMem_Free, or NULL with an exception set. */
row_target *take_targets(held_buffers *held, PyObject *targets, const schema *wanted, column *columns, Py_ssize_t count,
                         const Py_buffer *results, int num_results);

#endif
