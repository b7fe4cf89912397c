// Reads shapes and dtypes without going through Python where they are what they mostly are: an int, a
// tuple of ints; a dtype, a name of one, a scalar type. Names and types are looked up once: a small table
// from object to dtype, by address, whose entries hold their keys.

#include "arguments.hpp"

#include <cstring>
#include <limits>

#include "errors.hpp"

namespace cistern::python {

namespace {

constexpr npy_intp most_elements = std::numeric_limits<npy_intp>::max();

npy_intp read_extent(PyObject* extent, PyObject* shape) {
    Py_ssize_t value = 0;
    if (PyLong_CheckExact(extent)) {
        value = PyLong_AsSsize_t(extent);
    } else {
        value = PyNumber_AsSsize_t(extent, PyExc_OverflowError);
    }
    if (value == -1 && PyErr_Occurred() != nullptr) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
            PyErr_Clear();
            raise_invalid("an extent is larger than any array can be: shape %R", shape);
        }
        if (PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError,
                         "a shape is an integer or a sequence of integers; this is '%s': %R",
                         Py_TYPE(extent)->tp_name, shape);
        }
        throw ErrorIsSet{};
    }
    if (value < 0) raise_invalid("negative extents are not allowed: shape %R", shape);
    return value;
}

void read_items(PyObject* const* items, Py_ssize_t count, PyObject* shape, Extents& extents) {
    if (count > Extents::most) {
        raise_invalid("an array has at most %d dimensions, not %zd", Extents::most, count);
    }
    extents.count = static_cast<int>(count);
    bool empty = false;
    bool overflows = false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        const npy_intp extent = read_extent(items[i], shape);
        extents.values[i] = extent;
        empty = empty || extent == 0;
        overflows =
            __builtin_mul_overflow(extents.elements, extent, &extents.elements) || overflows;
    }
    if (empty) {
        extents.elements = 0;
    } else if (overflows) {
        raise_invalid("an array of this shape cannot be addressed: %R", shape);
    }
}

struct Known {
    PyObject* key = nullptr;
    PyArray_Descr* dtype = nullptr;
};
constexpr std::size_t known_count = 64;
Known known[known_count];

Known& place_of(PyObject* key) noexcept {
    return known[(reinterpret_cast<std::size_t>(key) >> 5) % known_count];
}

// What a name or a scalar type means never changes; what a class of the user's means may.
bool lasting(PyObject* key) noexcept {
    if (PyUnicode_CheckExact(key)) return true;
    if (!PyType_Check(key)) return false;
    return key == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
           key == reinterpret_cast<PyObject*>(&PyLong_Type) ||
           key == reinterpret_cast<PyObject*>(&PyBool_Type) ||
           key == reinterpret_cast<PyObject*>(&PyComplex_Type) ||
           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(key), &PyGenericArrType_Type) != 0;
}

PyArray_Descr* own(PyArray_Descr* dtype) noexcept {
    Py_INCREF(dtype);
    return dtype;
}

PyArray_Descr* float64() noexcept {
    static PyArray_Descr* const dtype = PyArray_DescrFromType(NPY_DOUBLE);
    return own(dtype);
}

// Text and bytes of no length get the length that numpy.empty gives them.
PyArray_Descr* sized(PyArray_Descr* dtype) {
    if (PyDataType_ELSIZE(dtype) != 0) return dtype;
    npy_intp one = 1;
    PyObject* const sample = PyArray_Empty(1, &one, dtype, 0);  // takes the reference
    if (sample == nullptr) throw ErrorIsSet{};
    PyArray_Descr* const result = own(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(sample)));
    Py_DECREF(sample);
    return result;
}

PyArray_Descr* convert(PyObject* spec) {
    PyArray_Descr* dtype = nullptr;
    if (PyArray_DescrConverter(spec, &dtype) == 0) throw ErrorIsSet{};
    if (PyDataType_REFCHK(dtype)) {
        PyErr_Format(PyExc_TypeError,
                     "dtype %R holds references to Python objects, which a pool cannot count; use "
                     "numpy.empty for it",
                     dtype);
        Py_DECREF(dtype);
        throw ErrorIsSet{};
    }
    return sized(dtype);
}

}  // namespace

void read_shape(PyObject* shape, Extents& extents) {
    if (PyLong_CheckExact(shape)) return read_items(&shape, 1, shape, extents);
    if (PyTuple_CheckExact(shape)) {
        return read_items(&PyTuple_GET_ITEM(shape, 0), PyTuple_GET_SIZE(shape), shape, extents);
    }
    if (PyIndex_Check(shape) != 0 && !PySequence_Check(shape)) {
        return read_items(&shape, 1, shape, extents);
    }
    // A 0-d integer array is an integer that looks like a sequence.
    if (PyArray_Check(shape) && PyArray_NDIM(reinterpret_cast<PyArrayObject*>(shape)) == 0) {
        return read_items(&shape, 1, shape, extents);
    }
    PyObject* items = nullptr;
    if (!PyUnicode_Check(shape) && !PyBytes_Check(shape) && PySequence_Check(shape)) {
        items = PySequence_Fast(shape, "");
    }
    if (items == nullptr) {
        PyErr_Format(PyExc_TypeError,
                     "a shape is an integer or a sequence of integers, not '%s': %R",
                     Py_TYPE(shape)->tp_name, shape);
        throw ErrorIsSet{};
    }
    try {
        read_items(PySequence_Fast_ITEMS(items), PySequence_Fast_GET_SIZE(items), shape, extents);
    } catch (...) {
        Py_DECREF(items);
        throw;
    }
    Py_DECREF(items);
}

PyArray_Descr* read_dtype(PyObject* dtype) {
    if (dtype == nullptr || dtype == Py_None) return float64();
    Known& place = place_of(dtype);
    if (place.key == dtype) return own(place.dtype);
    PyArray_Descr* const result = convert(dtype);
    const bool keep = PyArray_DescrCheck(dtype) ? result == reinterpret_cast<PyArray_Descr*>(dtype)
                                                : lasting(dtype);
    if (keep) {
        const Known before = place;
        Py_INCREF(dtype);
        place = {dtype, own(result)};
        Py_XDECREF(before.key);
        Py_XDECREF(before.dtype);
    }
    return result;
}

std::size_t bytes_of(PyObject* shape, const Extents& extents, PyArray_Descr* dtype) {
    npy_intp bytes = 0;
    if (__builtin_mul_overflow(extents.elements, PyDataType_ELSIZE(dtype), &bytes) ||
        bytes > most_elements - 4096) {
        raise_invalid("an array of this shape cannot be addressed: %R of %R", shape, dtype);
    }
    return static_cast<std::size_t>(bytes);
}

void read_arguments(const char* function, PyObject* const* args, Py_ssize_t positional,
                    PyObject* keywords, const char* const* names, int required, PyObject** values) {
    int count = 0;
    while (names[count] != nullptr) ++count;
    if (positional > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", function,
                     count, positional);
        throw ErrorIsSet{};
    }
    for (int i = 0; i < count; ++i) values[i] = i < positional ? args[i] : nullptr;
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t k = 0; k < named; ++k) {
        PyObject* const name = PyTuple_GET_ITEM(keywords, k);
        int i = 0;
        while (i < count && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) ++i;
        if (i == count || values[i] != nullptr) {
            PyErr_Format(PyExc_TypeError,
                         i == count ? "%s() got an unexpected keyword argument '%U'"
                                    : "%s() got multiple values for argument '%U'",
                         function, name);
            throw ErrorIsSet{};
        }
        values[i] = args[positional + k];
    }
    for (int i = 0; i < required; ++i) {
        if (values[i] == nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", function,
                         names[i]);
            throw ErrorIsSet{};
        }
    }
}

}  // namespace cistern::python
