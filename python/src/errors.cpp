// The classes live in cistern/errors.py, where they derive from what a NumPy user expects.

#include "errors.hpp"

#include <cstdarg>
#include <exception>
#include <new>

#include "cistern/error.hpp"

namespace cistern::python {

namespace {

PyObject* invalid_argument = nullptr;
PyObject* out_of_memory = nullptr;
PyObject* unavailable = nullptr;
PyObject* device_error = nullptr;

}  // namespace

void import_errors() {
    PyObject* const module = PyImport_ImportModule("cistern.errors");
    if (module == nullptr) throw ErrorIsSet{};
    const auto find = [module](PyObject*& place, const char* name) {
        place = PyObject_GetAttrString(module, name);
        if (place == nullptr) throw ErrorIsSet{};
    };
    find(invalid_argument, "InvalidArgument");
    find(out_of_memory, "OutOfMemory");
    find(unavailable, "Unavailable");
    find(device_error, "DeviceError");
    Py_DECREF(module);
}

void set_error() noexcept {
    try {
        throw;
    } catch (const ErrorIsSet&) {
    } catch (const OutOfMemory& error) {
        PyErr_SetString(out_of_memory, error.what());
    } catch (const InvalidArgument& error) {
        PyErr_SetString(invalid_argument, error.what());
    } catch (const Unavailable& error) {
        PyErr_SetString(unavailable, error.what());
    } catch (const DeviceError& error) {
        PyErr_SetString(device_error, error.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
}

void raise_invalid(const char* format, ...) {
    va_list values;
    va_start(values, format);
    PyErr_FormatV(invalid_argument, format, values);
    va_end(values);
    throw ErrorIsSet{};
}

}  // namespace cistern::python
