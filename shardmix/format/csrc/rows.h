/* Rows of dense columns; see rows.c. */

#ifndef SHARDMIX_ROWS_H
#define SHARDMIX_ROWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *py_place_rows(PyObject *module, PyObject *args);

#endif
