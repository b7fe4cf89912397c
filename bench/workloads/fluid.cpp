#include "fluid.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cistern/pool.hpp"
#include "cistern/scope.hpp"
#include "meter.hpp"
#include "scratch.hpp"

namespace cistern::workloads {

namespace {

enum Kind : std::size_t { flow, boundary, body, structure, kinds };

/// Elements of the arrays, and how often the solver iterates.
struct Size {
    std::size_t velocity, velocity_rim, vorticity, vorticity_inner, boundary, body, structure;
    std::size_t iterations, solver_iterations;
};

constexpr Size recorded{268068, 266332, 134469, 132733, 1740, 336, 504, 3, 20};

Size size_of(Scale scale) {
    switch (scale) {
        case Scale::small:
            return {4000, 3900, 2000, 1950, 100, 40, 60, 2, 3};
        case Scale::medium:
            break;
        case Scale::recorded:
            return recorded;
    }
    // A grid four times finer in both directions, and fewer iterations.
    Size size = recorded;
    for (std::size_t* field :
         {&size.velocity, &size.velocity_rim, &size.vorticity, &size.vorticity_inner}) {
        *field *= 16;
    }
    for (std::size_t* line : {&size.boundary, &size.body, &size.structure}) *line *= 4;
    size.solver_iterations = 2;
    return size;
}

/// The largest array that each pool lends.
std::array<std::size_t, kinds> block_elements(const Size& size) {
    return {size.velocity, size.boundary, size.body, size.structure};
}

/// Fresh per scope.
class MallocFluid {
public:
    explicit MallocFluid(const Size&) {}
    template <class F>
    void with(Kind, std::size_t elements, F&& f) {
        const auto array = std::make_unique_for_overwrite<double[]>(elements);
        f(array.get());
    }
    void count(Report&) const {}
};

/// One pool for all four: what one kind gives back may serve another.
class CisternFluid {
public:
    explicit CisternFluid(const Size&) {}
    template <class F>
    void with(Kind, std::size_t elements, F&& f) {
        with_arrays([&](const ArrayView<double, 1>& array) { f(array.data()); }, pool_,
                    shape<double>(elements));
    }
    void count(Report& report) const { report.hits = pool_.stats().hits; }

private:
    Pool pool_;
};

/// The seed's rule: every block of a pool has one size; a list is searched for a free one, and for
/// the one that comes back.
class SeedFluid {
public:
    explicit SeedFluid(const Size& size) : block_elements_(block_elements(size)) {}
    template <class F>
    void with(Kind kind, std::size_t, F&& f) {
        double* const block = take(kind);
        f(block);
        give(kind, block);
    }
    void count(Report& report) const { report.hits = hits_; }

private:
    struct Block {
        std::unique_ptr<double[]> data;
        bool lent;
    };

    double* take(Kind kind) {
        for (Block& block : blocks_[kind]) {
            if (block.lent) continue;
            block.lent = true;
            ++hits_;
            return block.data.get();
        }
        // Fresh blocks are zero.
        blocks_[kind].push_back({std::make_unique<double[]>(block_elements_[kind]), true});
        return blocks_[kind].back().data.get();
    }
    void give(Kind kind, const double* data) {
        for (Block& block : blocks_[kind]) {
            if (block.data.get() != data) continue;
            block.lent = false;
            return;
        }
    }

    std::array<std::size_t, kinds> block_elements_;
    std::array<std::vector<Block>, kinds> blocks_;
    std::uint64_t hits_ = 0;
};

/// to = from smoothed, along a line of `n` elements.
void smooth(const double* from, double* to, std::size_t n, double amount) {
    to[0] = from[0];
    for (std::size_t i = 1; i + 1 < n; ++i) {
        to[i] = from[i] + amount * (from[i - 1] - 2 * from[i] + from[i + 1]);
    }
    to[n - 1] = from[n - 1];
}

/// to += amount · from
void accumulate(const double* from, double* to, std::size_t n, double amount) {
    for (std::size_t i = 0; i < n; ++i) to[i] += amount * from[i];
}

/// Reads the flow at the points of a line, spread over the field.
void interpolate(const double* field, std::size_t n, double* line, std::size_t points) {
    for (std::size_t i = 0; i < points; ++i) line[i] = 0.5 * field[i * (n / points)];
}

void spread(const double* line, std::size_t points, double* field, std::size_t n) {
    for (std::size_t i = 0; i < points; ++i) field[i * (n / points)] += 0.01 * line[i];
}

template <class Pools>
class Solver {
public:
    Solver(const Size& size, Pools& pools, Live& live, const Scratch& velocity)
        : size_(size), pools_(pools), live_(live), velocity_(velocity.data()) {}

    void step() {
        predict();
        couple();
        correct();
    }

private:
    template <class F>
    void with(Kind kind, std::size_t elements, F&& f) {
        live_.add(elements * sizeof(double));
        pools_.with(kind, elements, std::forward<F>(f));
        live_.remove(elements * sizeof(double));
    }
    /// Several arrays of one size, each within the scope of the one before.
    template <std::size_t Count, class F, class... Arrays>
    void with_all(Kind kind, std::size_t elements, F&& f, Arrays*... arrays) {
        if constexpr (sizeof...(Arrays) == Count) {
            f(std::array<double*, Count>{arrays...});
        } else {
            with(kind, elements, [&](double* next) {
                with_all<Count>(kind, elements, std::forward<F>(f), arrays..., next);
            });
        }
    }

    void predict() {
        const std::size_t n = size_.velocity_rim;
        with(flow, n, [&](double* rate) {
            smooth(velocity_, rate, n, 0.1);
            accumulate(rate, velocity_, n, -0.001);
        });
        for (int stage = 0; stage < 4; ++stage) {
            with(flow, n, [&](double* rate) {
                smooth(velocity_, rate, n, 0.2);
                with(boundary, size_.boundary, [&](double* force) {
                    interpolate(rate, n, force, size_.boundary);
                    spread(force, size_.boundary, rate, n);
                });
                accumulate(rate, velocity_, n, 0.0005);
            });
        }
    }

    void couple() {
        with_all<3>(body, size_.body, [&](const std::array<double*, 3>& bodies) {
            with_all<8>(structure, size_.structure, [&](const std::array<double*, 8>& beams) {
                with(boundary, size_.boundary, [&](double* force) {
                    for (double* line : bodies) interpolate_from_flow(line, size_.body);
                    for (double* line : beams) interpolate_from_flow(line, size_.structure);
                    interpolate_from_flow(force, size_.boundary);
                    gather(bodies[0]);
                    for (std::size_t i = 0; i < size_.iterations; ++i) {
                        for (std::size_t k = 0; k < size_.solver_iterations; ++k) {
                            solve(bodies[k % 3], beams[k % 8], force);
                        }
                        with(flow, size_.velocity, [&](double* residual) {
                            smooth(velocity_, residual, size_.velocity, 0.05);
                            accumulate(residual, velocity_, size_.velocity, -0.0002);
                        });
                        gather(bodies[i % 3]);
                    }
                    spread(force, size_.boundary, velocity_, size_.velocity);
                });
            });
        });
    }

    /// One iteration of the coupled solve.
    void solve(double* line, double* beam, double* force) {
        with(body, size_.body, [&](double* motion) {
            smooth(line, motion, size_.body, 0.3);
            with_all<2>(structure, size_.structure, [&](const std::array<double*, 2>& bend) {
                smooth(beam, bend[0], size_.structure, 0.3);
                smooth(bend[0], bend[1], size_.structure, 0.3);
                const std::size_t n = size_.velocity;
                with(flow, n, [&](double* rate) {
                    smooth(velocity_, rate, n, 0.1);
                    interpolate(rate, n, line, size_.body);
                });
                with(flow, n, [&](double* rate) {
                    with(flow, size_.vorticity, [&](double* vorticity) {
                        smooth(velocity_, vorticity, size_.vorticity, 0.15);
                        smooth(velocity_ + (n - size_.vorticity), rate, size_.vorticity, 0.15);
                        smooth(vorticity, rate + (n - size_.vorticity), size_.vorticity, 0.15);
                        with(boundary, size_.boundary, [&](double* change) {
                            interpolate(rate, n, change, size_.boundary);
                            accumulate(change, force, size_.boundary, 0.01);
                        });
                    });
                });
                accumulate(bend[1], beam, size_.structure, -0.01);
            });
            accumulate(motion, line, size_.body, -0.01);
        });
    }

    void correct() {
        with(flow, size_.velocity, [&](double* rate) {
            with(flow, size_.vorticity_inner, [&](double* vorticity) {
                smooth(velocity_, vorticity, size_.vorticity_inner, 0.1);
                smooth(velocity_, rate, size_.velocity, 0.1);
                accumulate(vorticity, rate, size_.vorticity_inner, -0.1);
            });
            accumulate(rate, velocity_, size_.velocity, 0.001);
        });
        with(boundary, size_.boundary, [&](double* force) {
            interpolate_from_flow(force, size_.boundary);
            spread(force, size_.boundary, velocity_, size_.velocity);
        });
    }

    /// A short array from the pool of large ones, as the solver asks for it.
    void gather(double* line) {
        with(flow, size_.body, [&](double* moved) {
            interpolate_from_flow(moved, size_.body);
            accumulate(moved, line, size_.body, 0.1);
        });
    }
    void interpolate_from_flow(double* line, std::size_t points) {
        interpolate(velocity_, size_.velocity, line, points);
    }

    Size size_;
    Pools& pools_;
    Live& live_;
    double* velocity_;
};

template <class Pools>
Report measure(const Size& size, const Budget& budget) {
    const Scratch velocity(size.velocity);
    for (std::size_t i = 0; i < size.velocity; ++i) {
        velocity.data()[i] = std::sin(0.001 * static_cast<double>(i));
    }
    Meter meter(budget, 3 * size.velocity * sizeof(double));
    Pools pools(size);
    Solver<Pools> solver(size, pools, meter.live, velocity);
    do {
        solver.step();
    } while (meter.more());
    double checksum = 0;
    for (std::size_t i = 0; i < size.velocity; ++i) checksum += velocity.data()[i];
    Report report = meter.report(checksum);
    pools.count(report);
    return report;
}

}  // namespace

Report run_fluid(Store store, Scale scale, const Budget& budget) {
    const Size size = size_of(scale);
    switch (store) {
        case Store::cistern:
            return measure<CisternFluid>(size, budget);
        case Store::malloc:
            return measure<MallocFluid>(size, budget);
        case Store::seed:
            break;
    }
    return measure<SeedFluid>(size, budget);
}

}  // namespace cistern::workloads
