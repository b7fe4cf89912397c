#pragma once
// Arguments as NumPy users write them: shapes and dtypes. Each function throws ErrorIsSet with the
// Python error set that NumPy would raise, and names the value.

#include <cstddef>

#include "numpy_api.hpp"

namespace cistern::python {

struct Extents {
    static constexpr int most = 64;  // dimensions in any NumPy
    npy_intp values[most];
    int count = 0;
    npy_intp elements = 1;
};

/// Reads an int or a sequence of ints.
void read_shape(PyObject* shape, Extents& extents);

/// Returns a new reference; float64 for null and None. Refuses dtypes with Python objects inside.
PyArray_Descr* read_dtype(PyObject* dtype);

/// Returns the bytes of an array. Raises ValueError if they cannot be addressed.
std::size_t bytes_of(PyObject* shape, const Extents& extents, PyArray_Descr* dtype);

/// Sorts the arguments of METH_FASTCALL | METH_KEYWORDS by `names`, a list that ends with null. The
/// first `required` have to be there; what is missing stays null.
void read_arguments(const char* function, PyObject* const* args, Py_ssize_t positional,
                    PyObject* keywords, const char* const* names, int required, PyObject** values);

}  // namespace cistern::python
