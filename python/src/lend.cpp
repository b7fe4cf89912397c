// How an array comes to own pooled bytes: it is made over given data, then told that the data is its own
// and which handler frees it. NumPy does the rest.

#include "lend.hpp"

#include <limits>

#include "errors.hpp"
#include "gil.hpp"

namespace cistern::python {

namespace {

PyArrayObject_fields& fields_of(PyObject* array) noexcept {
    return *reinterpret_cast<PyArrayObject_fields*>(array);
}

PyArrayObject* as_array(PyObject* object) noexcept {
    return reinterpret_cast<PyArrayObject*>(object);
}

/// Makes an array over given bytes. Takes the reference to `dtype`.
PyObject* over(void* data, const Extents& extents, PyArray_Descr* dtype) {
    return PyArray_NewFromDescr(&PyArray_Type, dtype, extents.count, extents.values, nullptr, data,
                                NPY_ARRAY_CARRAY, nullptr);
}

bool owns_pooled(PyObject* array) noexcept {
    return PyArray_CHKFLAGS(as_array(array), NPY_ARRAY_OWNDATA) != 0 &&
           Handler::ours(static_cast<PyObject*>(fields_of(array).mem_handler)) &&
           tag_of(fields_of(array).data).owner == owned_by_pool;
}

/// Returns the one item of a list if it is an array with pooled bytes. Throws ErrorIsSet.
PyObject* boxed(PyObject* box) {
    PyObject* const array =
        PyList_CheckExact(box) && PyList_GET_SIZE(box) == 1 ? PyList_GET_ITEM(box, 0) : nullptr;
    if (array == nullptr || !PyArray_CheckExact(array)) {
        PyErr_SetString(PyExc_TypeError, "expected a list with one array in it");
        throw ErrorIsSet{};
    }
    return array;
}

}  // namespace

PythonPool::PythonPool(Pool pool, std::size_t most_bytes)
    : capsule_(Handler::make(pool, 0)), most_bytes_(most_bytes) {
    if (capsule_ == nullptr) throw ErrorIsSet{};
    handler_ = &Handler::of(capsule_);
}

PythonPool::~PythonPool() { Py_DECREF(capsule_); }

PyObject* PythonPool::array(PyObject* shape, PyObject* dtype, bool zeroed) {
    Extents extents;
    read_shape(shape, extents);
    PyArray_Descr* const descr = read_dtype(dtype);
    void* data = nullptr;
    try {
        const std::size_t bytes = bytes_of(shape, extents, descr);
        if (bytes == 0) return PyArray_Zeros(extents.count, extents.values, descr, 0);
        if (bytes > most_bytes_) [[unlikely]] {
            raise_invalid("%zu bytes are more than the blocks of this pool have: %zu", bytes,
                          most_bytes_);
        }
        const WithoutGil without(bytes >= (zeroed ? much_to_zero : much_to_fetch));
        if (handler_->separates_types()) [[unlikely]] {
            data =
                handler_->lend_typed(bytes, static_cast<std::size_t>(descr->type_num) + 1, zeroed);
        } else {
            data = zeroed ? handler_->lend_zeroed(bytes) : handler_->lend(bytes);
        }
    } catch (...) {
        Py_DECREF(descr);
        throw;
    }
    PyObject* const result = over(data, extents, descr);
    if (result == nullptr) {
        Handler::give_back(data);
        throw ErrorIsSet{};
    }
    PyArray_ENABLEFLAGS(as_array(result), NPY_ARRAY_OWNDATA);
    Py_INCREF(capsule_);
    fields_of(result).mem_handler = capsule_;
    return result;
}

PyObject* view(PyObject* /*module*/, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        static constexpr const char* names[] = {"owner", "shape", "dtype", "offset", nullptr};
        PyObject* values[4];
        read_arguments("view", args, count, keywords, names, 2, values);
        PyObject* const owner = values[0];
        if (!PyArray_Check(owner) || PyArray_IS_C_CONTIGUOUS(as_array(owner)) == 0) {
            PyErr_SetString(PyExc_TypeError, "the owner has to be a contiguous array");
            throw ErrorIsSet{};
        }
        Py_ssize_t offset = 0;
        if (values[3] != nullptr) {
            offset = PyNumber_AsSsize_t(values[3], PyExc_OverflowError);
            if (offset == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet{};
        }
        Extents extents;
        read_shape(values[1], extents);
        PyArray_Descr* const descr = read_dtype(values[2]);
        bool fits = false;
        try {
            const std::size_t bytes = bytes_of(values[1], extents, descr);
            const auto all = static_cast<std::size_t>(PyArray_NBYTES(as_array(owner)));
            fits = offset >= 0 && static_cast<std::size_t>(offset) <= all &&
                   bytes <= all - static_cast<std::size_t>(offset);
        } catch (...) {
            Py_DECREF(descr);
            throw;
        }
        if (!fits) {
            Py_DECREF(descr);
            Py_RETURN_NONE;
        }
        PyObject* const result = over(PyArray_BYTES(as_array(owner)) + offset, extents, descr);
        if (result == nullptr) throw ErrorIsSet{};
        Py_INCREF(owner);
        if (PyArray_SetBaseObject(as_array(result), owner) != 0) {
            Py_DECREF(result);
            throw ErrorIsSet{};
        }
        return result;
    });
}

PyObject* nbytes(PyObject* /*module*/, PyObject* const* args, Py_ssize_t count,
                 PyObject* keywords) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        static constexpr const char* names[] = {"shape", "dtype", nullptr};
        PyObject* values[2];
        read_arguments("nbytes", args, count, keywords, names, 1, values);
        Extents extents;
        read_shape(values[0], extents);
        PyArray_Descr* const descr = read_dtype(values[1]);
        try {
            const std::size_t bytes = bytes_of(values[0], extents, descr);
            Py_DECREF(descr);
            return PyLong_FromSize_t(bytes);
        } catch (...) {
            Py_DECREF(descr);
            throw;
        }
    });
}

PyObject* grow(PyObject* /*module*/, PyObject* const* args, Py_ssize_t count) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        if (count != 2) {
            PyErr_SetString(PyExc_TypeError, "grow() takes a list and a number of bytes");
            throw ErrorIsSet{};
        }
        PyObject* const array = boxed(args[0]);
        const Py_ssize_t bytes = PyNumber_AsSsize_t(args[1], PyExc_OverflowError);
        if (bytes == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet{};
        PyArrayObject_fields& fields = fields_of(array);
        if (Py_REFCNT(array) != 1 || fields.nd != 1 || fields.weakreflist != nullptr ||
            !owns_pooled(array)) {
            Py_RETURN_FALSE;
        }
        if (bytes <= fields.dimensions[0]) Py_RETURN_TRUE;
        Handler& handler = Handler::of(static_cast<PyObject*>(fields.mem_handler));
        void* data = nullptr;
        {
            // Out of the box, nobody else can find it while other threads run.
            PyObject* const hidden = Py_NewRef(Py_None);
            PyList_SET_ITEM(args[0], 0, hidden);
            struct Back {
                PyObject *box, *array;
                ~Back() {
                    PyObject* const hidden_item = PyList_GET_ITEM(box, 0);
                    PyList_SET_ITEM(box, 0, array);
                    Py_DECREF(hidden_item);
                }
            } const back{args[0], array};
            const WithoutGil without(static_cast<std::size_t>(bytes) >= much_to_fetch);
            data = handler.grow(fields.data, static_cast<std::size_t>(bytes));
        }
        fields.data = static_cast<char*>(data);
        fields.dimensions[0] = bytes;
        Py_RETURN_TRUE;
    });
}

PyObject* let_go(PyObject* /*module*/, PyObject* box) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        PyObject* const array = boxed(box);
        PyArrayObject_fields& fields = fields_of(array);
        if (Py_REFCNT(array) > 2 || fields.nd == 0 || !owns_pooled(array)) Py_RETURN_FALSE;
        npy_intp none[Extents::most] = {};
        PyArray_Descr* const descr = PyArray_DESCR(as_array(array));
        Py_INCREF(descr);
        PyObject* const empty = PyArray_Zeros(fields.nd, none, descr, 0);
        if (empty == nullptr) throw ErrorIsSet{};
        // They trade memory; the pool's then dies with `empty`.
        PyArrayObject_fields& other = fields_of(empty);
        std::swap(fields.data, other.data);
        std::swap(fields.mem_handler, other.mem_handler);
        for (int i = 0; i < fields.nd; ++i) {
            fields.dimensions[i] = 0;
            fields.strides[i] = other.strides[i];
        }
        Py_DECREF(empty);
        Py_RETURN_TRUE;
    });
}

PyObject* is_pooled(PyObject* /*module*/, PyObject* array) {
    PyObject* owner = array;
    while (owner != nullptr && PyArray_Check(owner)) {
        PyObject* const base = PyArray_BASE(as_array(owner));
        if (base == nullptr) return PyBool_FromLong(owns_pooled(owner) ? 1 : 0);
        owner = base;
    }
    Py_RETURN_FALSE;
}

}  // namespace cistern::python
