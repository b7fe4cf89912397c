// The module cistern._core: what Python code in cistern/ is built on. Not for users.

#define CISTERN_IMPORTS_NUMPY
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cistern/cistern.hpp"
#include "cuda.hpp"
#include "cupy.hpp"
#include "errors.hpp"
#include "lend.hpp"
#include "pool.hpp"

namespace nb = nanobind;
using namespace cistern::python;

namespace {

/// Makes NumPy allocate with this handler in the current context. Returns the one before.
PyObject* set_handler(PyObject* /*module*/, PyObject* capsule) {
    if (capsule != Py_None && PyCapsule_IsValid(capsule, "mem_handler") == 0) {
        PyErr_Format(PyExc_TypeError, "expected a memory handler or None, not %R", capsule);
        return nullptr;
    }
    return PyDataMem_SetHandler(capsule == Py_None ? nullptr : capsule);
}

/// Returns the handler that NumPy allocates with in the current context.
PyObject* get_handler(PyObject* /*module*/, PyObject* /*nothing*/) {
    return PyDataMem_GetHandler();
}

/// Raises ImportError in all but the first interpreter of the process that imports the module: what the
/// extension keeps, NumPy's C API among it, belongs to one.
void refuse_second_interpreter() {
    static const std::int64_t first = PyInterpreterState_GetID(PyInterpreterState_Get());
    const std::int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (here == first) return;
    throw std::runtime_error(
        "cistern works in one interpreter of a process: it is loaded in interpreter " +
        std::to_string(first) + ", this is interpreter " + std::to_string(here));
}

template <class Function>
PyCFunction as_function(Function* function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef functions[] = {
    {"view", as_function(&view), METH_FASTCALL | METH_KEYWORDS,
     "view(owner, shape, dtype=None, offset=0)\n--\n\nAn array over a part of another's bytes, or "
     "None."},
    {"nbytes", as_function(&nbytes), METH_FASTCALL | METH_KEYWORDS,
     "nbytes(shape, dtype=None)\n--\n\nThe bytes of such an array."},
    {"grow", as_function(&grow), METH_FASTCALL,
     "grow(box, nbytes, /)\n--\n\nMakes the byte array in a list longer if nobody else holds it."},
    {"let_go", &let_go, METH_O,
     "let_go(box, /)\n--\n\nGives the array's bytes back now if only one variable holds it."},
    {"is_pooled", &is_pooled, METH_O,
     "is_pooled(array, /)\n--\n\nWhether an array has its bytes from a pool."},
    {"set_handler", &set_handler, METH_O,
     "set_handler(handler, /)\n--\n\nMakes NumPy allocate with it here. Returns the one before."},
    {"get_handler", &get_handler, METH_NOARGS,
     "get_handler()\n--\n\nThe handler that NumPy allocates with here."},
    {"cupy_uses", as_function(&cupy_uses), METH_FASTCALL,
     "cupy_uses(unowned_memory, memory_pointer, device_id, current_stream, /)\n--\n\nKeeps what "
     "cupy_malloc() needs of CuPy."},
    {"cupy_malloc", &cupy_malloc, METH_O,
     "cupy_malloc(nbytes, /)\n--\n\nAn allocator for `cupy.cuda.set_allocator`, in the order of "
     "CuPy's current stream."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

NB_MODULE(_core, module) {
    refuse_second_interpreter();
    nb::set_leak_warnings(false);  // a pool may live as long as the process
    if (_import_array() < 0) throw nb::python_error();
    import_allocator();
    try {
        import_errors();
    } catch (const ErrorIsSet&) {
        throw nb::python_error();
    }
    nb::register_exception_translator([](const std::exception_ptr& error, void* /*nothing*/) {
        try {
            std::rethrow_exception(error);
        } catch (const ErrorIsSet&) {
        } catch (const cistern::Error&) {
            set_error();
        }
    });
    add_pool(module);
    add_cuda(module);
    if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw nb::python_error();
    module.attr("version") = cistern::version();
    module.attr("header_bytes") = least_header;
    module.def("default_max_idle_bytes", &cistern::default_max_idle_bytes);
    module.def("process_memory_limit", &cistern::process_memory_limit);
}
