#include "blas.hpp"

#include <cblas.h>

namespace cistern::workloads {

namespace {

int one_thread() {
    openblas_set_num_threads(1);
    return 1;
}

blasint as_int(std::size_t n) {
    static const int threads = one_thread();
    static_cast<void>(threads);
    return static_cast<blasint>(n);
}

}  // namespace

void gram(const double* a, std::size_t rows, std::size_t columns, std::size_t stride, double* c) {
    cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, as_int(columns), as_int(rows), 1.0, a,
                as_int(stride), 0.0, c, as_int(columns));
    mirror(c, columns);
}

void multiply(std::size_t rows, std::size_t columns, std::size_t inner, double factor,
              const double* a, const double* b, double* c) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, as_int(rows), as_int(columns),
                as_int(inner), factor, a, as_int(inner), b, as_int(columns), 0.0, c,
                as_int(columns));
}

const char* blas_name() { return "OpenBLAS"; }

}  // namespace cistern::workloads
