#pragma once
// CuPy's allocator, in CPython's calling convention: it runs between a program's kernels, with their code and data in
// the caches, where a Python function and the objects of a binding take microseconds.

#include <Python.h>

namespace cistern::python {

/// cupy_uses(unowned_memory, memory_pointer, device_id, current_stream): keeps what cupy_malloc() needs of CuPy,
/// two classes and two functions.
PyObject* cupy_uses(PyObject* module, PyObject* const* args, Py_ssize_t count);
/// cupy_malloc(nbytes): a MemoryPointer to bytes of the process's pool, on CuPy's current device and in the order of its
/// current stream.
PyObject* cupy_malloc(PyObject* module, PyObject* nbytes);

}  // namespace cistern::python
