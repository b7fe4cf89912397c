#include "cells.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "blas.hpp"
#include "cistern/keyed.hpp"
#include "meter.hpp"
#include "scratch.hpp"

namespace cistern::workloads {

namespace {

/// Every tenth row count of a recorded meridian.
constexpr std::array<std::size_t, 12> recorded_rows{12000, 12275, 13587, 15166, 17233, 21933,
                                                    25802, 25463, 30500, 39533, 41016, 59643};
constexpr std::size_t recorded_columns = 4033, second_columns = 200;

struct Size {
    std::size_t cells, row_divisor, columns;
};

Size size_of(Scale scale) {
    switch (scale) {
        case Scale::small:
            return {4, 100, 60};
        case Scale::medium:
            return {recorded_rows.size(), 8, 504};
        case Scale::recorded:
            break;
    }
    return {recorded_rows.size(), 1, recorded_columns};
}

struct Matrix {
    double* data;
    std::size_t rows, columns, stride;
};

/// Fresh arrays each time.
class MallocCells {
public:
    void begin_cell() {}
    Matrix get(std::string_view key, std::size_t rows, std::size_t columns) {
        std::unique_ptr<double[]>& array = arrays_[std::string(key)];
        array.reset();
        array = std::make_unique_for_overwrite<double[]>(rows * columns);
        return {array.get(), rows, columns, columns};
    }
    void done(std::string_view key) { arrays_[std::string(key)].reset(); }
    void end_cell() {}
    void count(Report&) const {}

private:
    std::map<std::string, std::unique_ptr<double[]>> arrays_;
};

class CisternCells {
public:
    void begin_cell() {}
    Matrix get(std::string_view key, std::size_t rows, std::size_t columns) {
        const ArrayView<double, 2> view = pool_.get<double>(key, rows, columns);
        return {view.data(), rows, columns, columns};
    }
    void done(std::string_view) {}
    void end_cell() {}
    void count(Report& report) const {
        report.hits = 0;
        for (const auto& [key, stats] : pool_.stats()) *report.hits += stats.hits;
    }

private:
    KeyedPool pool_;
};

/// NumPy's memory: malloc, and huge pages advised from 4 MiB.
class NumpyArray {
public:
    NumpyArray() = default;
    explicit NumpyArray(std::size_t elements) : data_(std::malloc(elements * sizeof(double))) {
        if (!data_) throw std::bad_alloc();
        const std::size_t bytes = elements * sizeof(double), page = 4096;
        if (bytes < std::size_t{4} << 20) return;
        const std::size_t ahead = page - reinterpret_cast<std::size_t>(data_.get()) % page;
        madvise(static_cast<char*>(data_.get()) + ahead, bytes - ahead, MADV_HUGEPAGE);
    }
    [[nodiscard]] double* data() const noexcept { return static_cast<double*>(data_.get()); }

private:
    struct Free {
        void operator()(void* data) const noexcept { std::free(data); }
    };
    std::unique_ptr<void, Free> data_;
};

/// The seed's rule: a view of the stored buffer if every extent fits, else a new one of the largest
/// extents so far, made before the old one goes. A pool lives for a cell.
class SeedCells {
public:
    void begin_cell() { buffers_.clear(); }
    Matrix get(std::string_view key, std::size_t rows, std::size_t columns) {
        Stored& stored = buffers_[std::string(key)];
        if (rows <= stored.rows && columns <= stored.columns) {
            ++hits_;
        } else {
            stored.rows = std::max(stored.rows, rows);
            stored.columns = std::max(stored.columns, columns);
            stored.array = NumpyArray(stored.rows * stored.columns);
        }
        return {stored.array.data(), rows, columns, stored.columns};
    }
    void done(std::string_view) {}
    void end_cell() { buffers_.clear(); }
    void count(Report& report) const { report.hits = hits_; }

private:
    struct Stored {
        std::size_t rows = 0, columns = 0;
        NumpyArray array;
    };
    std::map<std::string, Stored> buffers_;
    std::uint64_t hits_ = 0;
};

/// Products of a wave along the rows and one along the columns, as a spectrum's basis has them.
void fill(const Matrix& matrix, const double* row_wave, const double* column_wave) {
    for (std::size_t i = 0; i < matrix.rows; ++i) {
        double* const row = matrix.data + i * matrix.stride;
        const double factor = row_wave[i];
        for (std::size_t j = 0; j < matrix.columns; ++j) row[j] = factor * column_wave[j];
    }
}

double trace_and_corner(const double* square, std::size_t columns) {
    double sum = square[columns - 1];
    for (std::size_t i = 0; i < columns; ++i) sum += square[i * columns + i];
    return sum;
}

template <class Cells>
Report measure(const Size& size, const Budget& budget) {
    const std::size_t most_rows = recorded_rows.back() / size.row_divisor;
    const std::size_t fewer_columns = std::min(second_columns, size.columns);
    const Scratch row_wave(most_rows), column_wave(size.columns);
    const Scratch second_gram(fewer_columns * fewer_columns);
    for (std::size_t i = 0; i < most_rows; ++i) {
        row_wave.data()[i] = std::cos(0.37 * static_cast<double>(i));
    }
    for (std::size_t j = 0; j < size.columns; ++j) {
        column_wave.data()[j] = std::sin(0.11 * static_cast<double>(j) + 1);
    }
    warm_up_blas();

    Meter meter(budget, 2 * (most_rows + size.columns) * size.columns * sizeof(double));
    Cells store;
    double checksum = 0;
    const auto get = [&](const char* key, std::size_t rows, std::size_t columns) {
        meter.live.add(rows * columns * sizeof(double));
        return store.get(key, rows, columns);
    };
    const auto done = [&](const char* key, const Matrix& matrix) {
        meter.live.remove(matrix.rows * matrix.columns * sizeof(double));
        store.done(key);
    };
    do {
        for (std::size_t cell = 0; cell < size.cells; ++cell) {
            const std::size_t rows =
                recorded_rows[cell * recorded_rows.size() / size.cells] / size.row_divisor;
            store.begin_cell();
            const Matrix coeff = get("coeff", rows, size.columns);
            fill(coeff, row_wave.data(), column_wave.data());
            const Matrix product = get("E_tilda_lm", size.columns, size.columns);
            gram(coeff.data, coeff.rows, coeff.columns, coeff.stride, product.data);
            checksum += trace_and_corner(product.data, size.columns);
            done("E_tilda_lm", product);
            done("coeff", coeff);

            const Matrix second = get("coeff", rows * 43 / 100, fewer_columns);
            fill(second, row_wave.data(), column_wave.data());
            gram(second.data, second.rows, second.columns, second.stride, second_gram.data());
            checksum += trace_and_corner(second_gram.data(), fewer_columns);
            done("coeff", second);
            store.end_cell();
        }
    } while (meter.more());
    Report report = meter.report(checksum);
    store.count(report);
    return report;
}

}  // namespace

Report run_cells(Store store, Scale scale, const Budget& budget) {
    const Size size = size_of(scale);
    switch (store) {
        case Store::cistern:
            return measure<CisternCells>(size, budget);
        case Store::malloc:
            return measure<MallocCells>(size, budget);
        case Store::seed:
            break;
    }
    return measure<SeedCells>(size, budget);
}

}  // namespace cistern::workloads
