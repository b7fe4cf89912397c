#pragma once
// NumPy's C API, shared by the files of the extension; module.cpp imports it. Works with NumPy 1.24 and
// later, whichever it was compiled with.

#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL cistern_array_api
#ifndef CISTERN_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
