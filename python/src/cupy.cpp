#include "cupy.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "cistern/cistern.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "interop/open_lanes.hpp"

namespace cistern::python {

namespace {

/// The owner of a CuPy memory: a buffer that goes back with the object.
struct Owner {
    PyObject ob_base;
    Buffer buffer;
};

void let_owner_go(PyObject* self) {
    auto* const owner = reinterpret_cast<Owner*>(self);
    {
        const WithoutGil without;  // it may wait for the device
        owner->buffer.~Buffer();
    }
    PyObject_Free(self);
}

PyTypeObject make_owner_type() {
    PyTypeObject type{};
    type.ob_base = {PyObject_HEAD_INIT(nullptr) 0};
    type.tp_name = "cistern._core.Owner";
    type.tp_basicsize = sizeof(Owner);
    type.tp_dealloc = &let_owner_go;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    return type;
}

PyTypeObject owner_type = make_owner_type();

/// What cupy_uses() was told; never given back.
struct Cupy {
    PyObject *unowned_memory, *memory_pointer, *device_id, *current_stream, *ptr, *zero;
} cupy{};

struct Drop {
    void operator()(PyObject* object) const noexcept { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, Drop>;

/// Takes a new reference. Throws ErrorIsSet for null.
Object own(PyObject* object) {
    if (object == nullptr) throw ErrorIsSet{};
    return Object(object);
}

Object lend(int device, std::size_t bytes, void* stream) {
    Buffer buffer;
    {
        const WithoutGil without;  // it may wait for the driver
        buffer = detail::acquire_on_any(default_pool(MemoryKind::device, device), bytes, stream);
    }
    auto* const owner = PyObject_New(Owner, &owner_type);
    if (owner == nullptr) throw ErrorIsSet{};
    new (&owner->buffer) Buffer(std::move(buffer));
    return Object(reinterpret_cast<PyObject*>(owner));
}

}  // namespace

PyObject* cupy_uses(PyObject* /*module*/, PyObject* const* args, Py_ssize_t count) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        if (count != 4) {
            PyErr_SetString(PyExc_TypeError, "cupy_uses() takes two classes and two functions");
            throw ErrorIsSet{};
        }
        if (PyType_Ready(&owner_type) != 0) throw ErrorIsSet{};
        Object ptr = own(PyUnicode_InternFromString("ptr")), zero = own(PyLong_FromLong(0));
        for (Py_ssize_t i = 0; i < count; ++i) Py_INCREF(args[i]);
        cupy = {args[0], args[1], args[2], args[3], ptr.release(), zero.release()};
        Py_RETURN_NONE;
    });
}

PyObject* cupy_malloc(PyObject* /*module*/, PyObject* nbytes) {
    return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
        const Py_ssize_t bytes = PyNumber_AsSsize_t(nbytes, PyExc_OverflowError);
        if (bytes == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet{};
        if (bytes < 0) raise_invalid("bytes are negative: %zd", bytes);
        if (cupy.device_id == nullptr) {
            PyErr_SetString(PyExc_RuntimeError, "import cistern.cupy first");
            throw ErrorIsSet{};
        }
        const Object device = own(PyObject_CallNoArgs(cupy.device_id));
        const Object stream = own(PyObject_CallNoArgs(cupy.current_stream));
        const Object handle = own(PyObject_GetAttr(stream.get(), cupy.ptr));
        const long number = PyLong_AsLong(device.get());
        if (number == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet{};
        void* const address = PyLong_AsVoidPtr(handle.get());
        if (address == nullptr && PyErr_Occurred() != nullptr) throw ErrorIsSet{};
        const Object owner =
            lend(static_cast<int>(number), static_cast<std::size_t>(std::max<Py_ssize_t>(bytes, 1)),
                 address);
        const Object data =
            own(PyLong_FromVoidPtr(reinterpret_cast<Owner*>(owner.get())->buffer.data()));
        PyObject* const of_memory[] = {data.get(), nbytes, owner.get(), device.get()};
        const Object memory = own(PyObject_Vectorcall(cupy.unowned_memory, of_memory, 4, nullptr));
        PyObject* const of_pointer[] = {memory.get(), cupy.zero};
        return PyObject_Vectorcall(cupy.memory_pointer, of_pointer, 2, nullptr);
    });
}

}  // namespace cistern::python
