#include "einsum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "blas.hpp"
#include "cistern/pool.hpp"
#include "einsum_network.hpp"
#include "meter.hpp"
#include "scratch.hpp"

namespace cistern::workloads {

namespace {

constexpr int recorded_bits = 24;  // of the largest tensor
constexpr std::size_t recorded_idle_bytes = std::size_t{100} << 20;

/// Tensors with more bits get this many; the cap on idle bytes shrinks with the largest tensor.
int most_bits(Scale scale) {
    switch (scale) {
        case Scale::small:
            return 14;
        case Scale::medium:
            return recorded_bits;
        case Scale::recorded:
            break;
    }
    return recorded_bits;
}

class MallocTensors {
public:
    using Array = std::unique_ptr<double[]>;

    explicit MallocTensors(std::size_t) {}
    Array take(std::size_t elements) { return std::make_unique_for_overwrite<double[]>(elements); }
    void give(Array&& array) { array.reset(); }
    static double* data(const Array& array) { return array.get(); }
    void count(Report&) const {}
};

class CisternTensors {
public:
    using Array = cistern::Array<double, 1>;

    explicit CisternTensors(std::size_t max_idle_bytes)
        : pool_(Memory::host(), {.max_idle_bytes = max_idle_bytes}) {}
    Array take(std::size_t elements) { return pool_.array<double>(elements); }
    void give(Array&& array) { array = {}; }
    static double* data(const Array& array) { return array.data(); }
    void count(Report& report) const { report.hits = pool_.stats().hits; }

private:
    Pool pool_;
};

/// The seed's rule: the smallest idle buffer that is large enough, last in first out among equals; a
/// release above the cap evicts the smallest until the rest fits.
class SeedTensors {
public:
    struct Array {
        std::unique_ptr<double[]> data;
        std::size_t capacity = 0;
    };

    explicit SeedTensors(std::size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
    Array take(std::size_t elements) {
        const auto fits = idle_.lower_bound(elements);
        if (fits == idle_.end()) {
            return {std::make_unique_for_overwrite<double[]>(elements), elements};
        }
        const auto last = std::prev(idle_.upper_bound(fits->first));
        Array array{std::move(last->second), last->first};
        idle_bytes_ -= array.capacity * sizeof(double);
        idle_.erase(last);
        ++hits_;
        return array;
    }
    void give(Array&& array) {
        idle_bytes_ += array.capacity * sizeof(double);
        idle_.emplace(array.capacity, std::move(array.data));
        while (idle_bytes_ > max_idle_bytes_) {
            idle_bytes_ -= idle_.begin()->first * sizeof(double);
            idle_.erase(idle_.begin());
        }
    }
    static double* data(const Array& array) { return array.data.get(); }
    void count(Report& report) const { report.hits = hits_; }

private:
    std::size_t max_idle_bytes_, idle_bytes_ = 0;
    std::multimap<std::size_t, std::unique_ptr<double[]>> idle_;
    std::uint64_t hits_ = 0;
};

std::size_t elements_of(int bits) { return std::size_t{1} << bits; }

/// Swaps the first half of a tensor's indices with the second: a transposition, in tiles of a cache
/// line squared that pass through a buffer, so that no line is fetched twice whatever the strides.
void permute(const double* from, double* to, int bits) {
    const std::size_t rows = elements_of(bits / 2), columns = elements_of(bits - bits / 2);
    constexpr std::size_t tile = 8;
    if (rows < tile) {
        for (std::size_t j = 0; j < columns; ++j) {
            for (std::size_t i = 0; i < rows; ++i) to[j * rows + i] = from[i * columns + j];
        }
        return;
    }
    std::array<double, tile * tile> buffer;
    for (std::size_t top = 0; top < rows; top += tile) {
        for (std::size_t left = 0; left < columns; left += tile) {
            for (std::size_t i = 0; i < tile; ++i) {
                const double* const row = from + (top + i) * columns + left;
                for (std::size_t j = 0; j < tile; ++j) buffer[j * tile + i] = row[j];
            }
            for (std::size_t j = 0; j < tile; ++j) {
                double* const row = to + (left + j) * rows + top;
                for (std::size_t i = 0; i < tile; ++i) row[i] = buffer[j * tile + i];
            }
        }
    }
}

/// Sums over as few of the shared indices as the sizes allow, but at least two where there are as
/// many; the other shared ones stay in the output. Sums are means, so that values stay near one.
void contract(const double* a, int a_bits, const double* b, int b_bits, double* out, int out_bits) {
    const int shared = a_bits + b_bits - out_bits;  // counts the summed ones twice
    const int summed = std::min(std::max(2, std::max(a_bits, b_bits) - out_bits), shared / 2);
    const int batch = shared - 2 * summed;
    const std::size_t rows = elements_of(a_bits - batch - summed), inner = elements_of(summed),
                      columns = elements_of(b_bits - batch - summed);
    const double factor = 1.0 / static_cast<double>(inner);
    for (std::size_t i = 0; i < elements_of(batch); ++i) {
        multiply(rows, columns, inner, factor, a, b, out);
        a += rows * inner;
        b += inner * columns;
        out += rows * columns;
    }
}

template <class Tensors>
class Network {
public:
    Network(Tensors& tensors, Live& live, const Scratch& inputs, int most)
        : tensors_(tensors), live_(live), inputs_(inputs.data()), most_bits_(most) {}

    /// Returns the number that the network contracts to.
    double contract_all() {
        for (std::size_t i = 0; i < std::size(network); ++i) contract_one(i);
        const double result = *Tensors::data(outputs_.back());
        for (std::size_t i = 0; i < std::size(network); ++i) {
            if (Tensors::data(outputs_[i]) != nullptr) give(outputs_[i], bits(network[i].out_bits));
        }
        return result;
    }

private:
    using Array = typename Tensors::Array;

    [[nodiscard]] int bits(int recorded) const { return std::min(recorded, most_bits_); }
    Array take(int bits) {
        live_.add(elements_of(bits) * sizeof(double));
        return tensors_.take(elements_of(bits));
    }
    void give(Array& array, int bits) {
        live_.remove(elements_of(bits) * sizeof(double));
        tensors_.give(std::exchange(array, {}));
    }
    [[nodiscard]] const double* input(int source) const {
        return source < 0 ? inputs_ : Tensors::data(outputs_[static_cast<std::size_t>(source)]);
    }

    void contract_one(std::size_t index) {
        const Contraction& step = network[index];
        const std::array<int, 2> sources{step.a, step.b};
        const std::array<int, 2> sizes{bits(step.a_bits), bits(step.b_bits)};
        std::array<const double*, 2> data{input(step.a), input(step.b)};
        std::array<Array, 2> packs;
        for (std::size_t side = 0; side < 2; ++side) {
            if ((step.packed >> side & 1) == 0) continue;
            packs[side] = take(sizes[side]);
            permute(data[side], Tensors::data(packs[side]), sizes[side]);
            data[side] = Tensors::data(packs[side]);
        }
        const int out_bits = bits(step.out_bits);
        outputs_[index] = take(out_bits);
        contract(data[0], sizes[0], data[1], sizes[1], Tensors::data(outputs_[index]), out_bits);
        for (std::size_t side = 0; side < 2; ++side) {
            if (Tensors::data(packs[side]) != nullptr) give(packs[side], sizes[side]);
        }
        for (std::size_t side = 0; side < 2; ++side) {
            if (sources[side] < 0) continue;
            give(outputs_[static_cast<std::size_t>(sources[side])], sizes[side]);
        }
    }

    Tensors& tensors_;
    Live& live_;
    const double* inputs_;
    int most_bits_;
    std::array<Array, std::size(network)> outputs_;
};

template <class Tensors>
Report measure(int most, const Budget& budget) {
    const Scratch inputs(elements_of(10));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        inputs.data()[i] = 1 + 0.2 * std::sin(static_cast<double>(i));
    }
    warm_up_blas();

    Meter meter(budget, 3 * elements_of(most) * sizeof(double));
    Tensors tensors(recorded_idle_bytes >> (recorded_bits - most));
    Network<Tensors> network(tensors, meter.live, inputs, most);
    double checksum = 0;
    do {
        checksum += network.contract_all();
    } while (meter.more());
    Report report = meter.report(checksum);
    tensors.count(report);
    return report;
}

}  // namespace

Report run_einsum(Store store, Scale scale, const Budget& budget) {
    const int most = most_bits(scale);
    switch (store) {
        case Store::cistern:
            return measure<CisternTensors>(most, budget);
        case Store::malloc:
            return measure<MallocTensors>(most, budget);
        case Store::seed:
            break;
    }
    return measure<SeedTensors>(most, budget);
}

}  // namespace cistern::workloads
