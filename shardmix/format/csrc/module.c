/* shardmix.format._core: what Python may call.
 *
 * Rule 1: here arguments are taken, held and checked; the work is in the files that know nothing of Python.
 * Rule 2: results are numbers and filled arrays; texts are made in Python (shardmix/format/native.py), so that both backends
 * have one. The texts here are for the author of native.py.
 * Rule 3: the GIL is released around every loop over data, and no Python API is called without it.
 */

#include "buffers.h"
#include "bytes.h"
#include "crc32c.h"
#include "decode_module.h"
#include "frames.h"
#include "rows.h"
#include "runs.h"
#include "spans.h"

/* crc32c(data, value, portable) -> int */
static PyObject *py_crc32c(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data;
    unsigned int value = 0;
    int portable = 0;
    if (!PyArg_ParseTuple(args, "O|Ip:crc32c", &data, &value, &portable))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 1) < 0)
        return NULL;
    Py_buffer *view = hold_bytes(&held, data, 0);
    uint32_t crc = 0;
    if (view) {
        Py_BEGIN_ALLOW_THREADS
        crc = (portable ? crc32c_portable : crc32c)(value, view->buf, (size_t)view->len);
        Py_END_ALLOW_THREADS
    }
    drop_buffers(&held);
    return view ? PyLong_FromUnsignedLong(crc) : NULL;
}

/* scan_frames(data, remaining, verify, lengths) -> (count, consumed, damage) */
static PyObject *py_scan_frames(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data, *lengths;
    long long remaining;
    int verify;
    if (!PyArg_ParseTuple(args, "OLiO:scan_frames", &data, &remaining, &verify, &lengths))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 2) < 0)
        return NULL;
    PyObject *result = NULL;
    Py_ssize_t room;
    Py_buffer *view = hold_bytes(&held, data, 0);
    int64_t *out = view ? hold_ints(&held, lengths, 1, "lengths", -1, &room) : NULL;
    if (out && (remaining < view->len || room < view->len / FRAME_BYTES)) {
        PyErr_SetString(PyExc_ValueError, "scan_frames: remaining or lengths is too small");
    } else if (out) {
        frame_scan scan;
        Py_BEGIN_ALLOW_THREADS
        scan = scan_frames(view->buf, view->len, remaining, verify, out);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("LLi", (long long)scan.count, (long long)scan.consumed, scan.damage);
    }
    drop_buffers(&held);
    return result;
}

static int have_places(const int64_t *start, const int64_t *length, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (start[i] < HEADER_BYTES || length[i] < 0)
            return 0;
    return 1;
}

/* check_frames(data, start, length, verify, codes) */
static PyObject *py_check_frames(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data, *starts, *lengths, *out;
    int verify;
    if (!PyArg_ParseTuple(args, "OOOiO:check_frames", &data, &starts, &lengths, &verify, &out))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 4) < 0)
        return NULL;
    Py_ssize_t count = 0;
    int64_t *start = NULL, *length = NULL, *codes = NULL;
    Py_buffer *view = hold_bytes(&held, data, 0);
    int ok = view && (start = hold_ints(&held, starts, 0, "start", -1, &count))
          && (length = hold_ints(&held, lengths, 0, "length", count, NULL))
          && (codes = hold_ints(&held, out, 1, "codes", count, NULL));
    if (ok && !have_places(start, length, count)) {
        PyErr_SetString(PyExc_ValueError, "check_frames: a frame begins before the buffer");
        ok = 0;
    }
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        check_frames(view->buf, view->len, start, length, count, verify, codes);
        Py_END_ALLOW_THREADS
    }
    drop_buffers(&held);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* Whether one of the first buffers, which are written, overlaps another: numbers must not change once they were checked. */
static int is_read_and_written(const held_buffers *held, Py_ssize_t num_written)
{
    for (Py_ssize_t i = 0; i < num_written; i++)
        for (Py_ssize_t j = i + 1; j < held->count; j++)
            if (overlap(&held->views[i], &held->views[j]))
                return 1;
    return 0;
}

/* copy_spans(source, source_start, length, out, out_start, item_bytes) -> number of the first bad span, or -1 */
static PyObject *py_copy_spans(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *source, *source_starts, *lengths, *out, *out_starts;
    Py_ssize_t item_bytes;
    if (!PyArg_ParseTuple(args, "OOOOOn:copy_spans", &source, &source_starts, &lengths, &out, &out_starts, &item_bytes))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 5) < 0)
        return NULL;
    Py_ssize_t count = 0;
    int64_t *source_start = NULL, *length = NULL, *out_start = NULL;
    Py_buffer *to = hold_bytes(&held, out, 1), *from = to ? hold_bytes(&held, source, 0) : NULL;
    int ok = from && (length = hold_ints(&held, lengths, 0, "length", -1, &count))
          && (source_start = hold_ints(&held, source_starts, 0, "source_start", count, NULL))
          && (out_start = hold_ints(&held, out_starts, 0, "out_start", count, NULL));
    if (ok && (item_bytes <= 0 || is_read_and_written(&held, 1))) {
        PyErr_SetString(PyExc_ValueError, "copy_spans: items of no bytes, or arrays that overlap");
        ok = 0;
    }
    int64_t bad = -1;
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        bad = find_bad_span(source_start, length, out_start, count, from->len / item_bytes, to->len / item_bytes);
        if (bad < 0)
            copy_spans(from->buf, source_start, length, to->buf, out_start, count, item_bytes);
        Py_END_ALLOW_THREADS
    }
    drop_buffers(&held);
    return ok ? PyLong_FromLongLong(bad) : NULL;
}

#ifndef _WIN32
static int hold_runs(held_buffers *held, PyObject *const *numbers, frame_runs *runs)
{
    Py_ssize_t count, num_rows;
    if (!(runs->descriptor = hold_ints(held, numbers[0], 0, "descriptor", -1, &count))
        || !(runs->start = hold_ints(held, numbers[4], 0, "start", -1, &num_rows)))
        return 0;
    runs->count = count;
    runs->num_rows = num_rows;
    return (runs->offset = hold_ints(held, numbers[1], 0, "offset", count, NULL))
        && (runs->bounds = hold_ints(held, numbers[2], 0, "bounds", count + 1, NULL))
        && (runs->rows = hold_ints(held, numbers[3], 0, "rows", count + 1, NULL))
        && (runs->length = hold_ints(held, numbers[5], 0, "length", num_rows, NULL));
}

/* read_runs(descriptor, offset, bounds, rows, start, length, buffer, verify, got, codes) -> (run that failed, errno) */
static PyObject *py_read_runs(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *numbers[6], *buffer, *gots, *out;
    int verify;
    if (!PyArg_ParseTuple(args, "OOOOOOOiOO:read_runs", &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4],
                          &numbers[5], &buffer, &verify, &gots, &out))
        return NULL;
    held_buffers held;
    if (reserve_buffers(&held, 9) < 0)
        return NULL;
    frame_runs runs;
    int64_t *got = NULL, *codes = NULL;
    Py_ssize_t num_got, num_codes;
    Py_buffer *view = hold_bytes(&held, buffer, 1);
    int ok = view && (got = hold_ints(&held, gots, 1, "got", -1, &num_got))
          && (codes = hold_ints(&held, out, 1, "codes", -1, &num_codes)) && hold_runs(&held, numbers, &runs);
    if (ok && (num_got != runs.count || num_codes != runs.num_rows || is_read_and_written(&held, 3)
               || !are_runs_sound(&runs, view->len))) {
        PyErr_SetString(PyExc_ValueError, "read_runs: a run or a frame has no place, or arrays overlap");
        ok = 0;
    }
    read_failure failure = {0, 0};
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failure = read_runs(&runs, view->buf, verify, got, codes);
        Py_END_ALLOW_THREADS
    }
    drop_buffers(&held);
    return ok ? Py_BuildValue("Li", (long long)failure.run, failure.error) : NULL;
}
#endif

static PyMethodDef functions[] = {
    {"crc32c", py_crc32c, METH_VARARGS, "crc32c(data, value=0, portable=False) -> int"},
    {"scan_frames", py_scan_frames, METH_VARARGS, "scan_frames(data, remaining, verify, lengths) -> (count, consumed, damage)"},
    {"check_frames", py_check_frames, METH_VARARGS, "check_frames(data, start, length, verify, codes)"},
#ifndef _WIN32
    {"read_runs", py_read_runs, METH_VARARGS,
     "read_runs(descriptor, offset, bounds, rows, start, length, buffer, verify, got, codes) -> (run that failed, errno)"},
#endif
    {"copy_spans", py_copy_spans, METH_VARARGS,
     "copy_spans(source, source_start, length, out, out_start, item_bytes) -> first bad span, or -1"},
    {"cut_bytes", py_cut_bytes, METH_VARARGS, NULL},
    {"place_rows", py_place_rows, METH_VARARGS, "place_rows(sources, positions, outs, num_rows) -> bool; see csrc/rows.c"},
    {"count_values", py_count_values, METH_VARARGS, "Pass 1 of decoding; see csrc/decode_module.c"},
    {"decode_examples", py_decode_examples, METH_VARARGS, "Pass 2 of decoding; see csrc/decode_module.c"},
    {"decode_dense", py_decode_dense, METH_VARARGS, "Both passes, where every column is dense; see csrc/decode_module.c"},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    crc32c_init();
    return PyModule_AddStringConstant(module, "crc32c_method", crc32c_method());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The C twins of shardmix.format; called through shardmix/format/native.py.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
