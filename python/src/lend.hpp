#pragma once
// Arrays over a pool's bytes: plain numpy.ndarrays that own their memory, with a handler that gives it
// back to the pool when the last view dies. No base object, nothing per array but its header.

#include "arguments.hpp"
#include "handler.hpp"

namespace cistern::python {

/// A pool as Python holds it.
class PythonPool {
public:
    PythonPool(Pool pool, std::size_t most_bytes);
    PythonPool(const PythonPool&) = delete;
    PythonPool& operator=(const PythonPool&) = delete;
    ~PythonPool();

    Pool& pool() noexcept { return handler_->pool(); }
    Handler& handler() noexcept { return *handler_; }

    /// Returns a new array. Throws ErrorIsSet, and like Pool::acquire.
    PyObject* array(PyObject* shape, PyObject* dtype, bool zeroed);

private:
    PyObject* capsule_;  // each array holds a reference to it
    Handler* handler_;
    std::size_t most_bytes_;  // of one array
};

// Functions of the module, in CPython's calling convention.

/// view(owner, shape, dtype=None, offset=0): an array over a part of another's bytes, or None if it does
/// not fit in them.
PyObject* view(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords);
/// nbytes(shape, dtype=None): the bytes of such an array, or the error that asking for it would be.
PyObject* nbytes(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords);
/// grow(box, nbytes): makes the 1-d byte array that is the list `box`'s only item longer in place.
/// Returns False, changing nothing, if somebody else holds it.
PyObject* grow(PyObject* module, PyObject* const* args, Py_ssize_t count);
/// let_go(box): gives the bytes of the array in the list back now and leaves it with no elements.
/// Returns False, changing nothing, if it is held by more than the list and one variable.
PyObject* let_go(PyObject* module, PyObject* box);
/// is_pooled(array): whether the array, or the one it is a view of, has its bytes from a pool.
PyObject* is_pooled(PyObject* module, PyObject* array);

}  // namespace cistern::python
