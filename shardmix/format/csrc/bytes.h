/* bytes objects out of one buffer; see bytes.c. */

#ifndef SHARDMIX_BYTES_H
#define SHARDMIX_BYTES_H

#include "buffers.h"

PyObject *py_cut_bytes(PyObject *module, PyObject *args);

#endif
