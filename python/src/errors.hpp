#pragma once
// From C++ exceptions to the classes of cistern.errors, for functions that call CPython directly.

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace cistern::python {

/// Sets the Python error that stands for the exception being handled; one that is set already stays.
void set_error() noexcept;

/// Thrown when a Python error is set already.
struct ErrorIsSet {};

/// Returns what `body` returns, or `failed` with a Python error set. (What unwinds a thread that ends is no object.)
template <class Result, class Body>
__attribute__((no_sanitize("null"))) Result guarded(Result failed, Body&& body) noexcept {
    try {
        return body();
    } catch (const abi::__forced_unwind&) {
        // The interpreter has ended, and this thread is to; through C++ it cannot, as in WithoutGil.
        for (;;) pause();
    } catch (...) {
        set_error();
        return failed;
    }
}

/// Looks the classes up in cistern.errors. Throws ErrorIsSet.
void import_errors();

/// Raises cistern.InvalidArgument, a ValueError, with PyErr_Format's text; throws ErrorIsSet.
[[noreturn]] void raise_invalid(const char* format, ...);

}  // namespace cistern::python
