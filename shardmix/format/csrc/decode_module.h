/* The two passes as Python calls them; see decode_module.c. */

#ifndef SHARDMIX_DECODE_MODULE_H
#define SHARDMIX_DECODE_MODULE_H

#include "buffers.h"

PyObject *py_count_values(PyObject *module, PyObject *args);
PyObject *py_decode_examples(PyObject *module, PyObject *args);
PyObject *py_decode_dense(PyObject *module, PyObject *args);

#endif
