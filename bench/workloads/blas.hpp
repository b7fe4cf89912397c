#pragma once
// The two matrix products that the workloads need, row-major, on one thread: OpenBLAS where the build
// found it (blas_openblas.cpp), else loops of our own, several times slower (blas_own.cpp).

#include <cstddef>

namespace cistern::workloads {

/// c = aᵀ·a, where `a` has `stride` elements from one row to the next. `c` is compact; all of it is
/// written.
void gram(const double* a, std::size_t rows, std::size_t columns, std::size_t stride, double* c);

/// c = factor · a·b, all compact: `a` has `rows` × `inner`, `b` has `inner` × `columns` elements.
void multiply(std::size_t rows, std::size_t columns, std::size_t inner, double factor,
              const double* a, const double* b, double* c);

/// Makes the library touch the memory that it keeps for itself, so that no run is charged for it.
void warm_up_blas();

/// Returns "OpenBLAS" or "own".
const char* blas_name();

/// Copies the upper triangle of a square matrix to the lower one.
void mirror(double* c, std::size_t columns);

}  // namespace cistern::workloads
