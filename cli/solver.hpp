#pragma once
// The work of `cistern demo`: heat sources wander over a plate. Around each, a finer window follows
// the hot region, so that every array of a step has a shape of its own, as in adaptive mesh codes.
// A step takes about ten temporaries per window; the windows are shared out among threads; each
// keeps its last solution for the next step, where another thread may free it.
//
// `Store` says where arrays come from: `store.array(rows, columns)` returns an owner with `view()`,
// contents undefined. The arithmetic does not depend on it, nor on the number of threads.

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "cistern/array.hpp"
#include "team.hpp"

namespace cistern::cli {

using Grid = ArrayView<double, 2>;

/// A rectangle of plate cells.
struct Window {
    std::size_t top = 0, left = 0, rows = 0, columns = 0;
};

struct Source {
    double row, column;  // in plate cells
    double radius, heat;
};

inline constexpr std::size_t plate_cells = 1024, source_count = 6, refinement = 4, substeps = 2;

/// Returns where source `index` is in this step: a closed curve, its own for each.
Source source_at(std::size_t index, std::size_t step);
/// Returns the rectangle around the source that holds every hot cell near it.
Window hot_window(const Grid& plate, const Source& source);
/// Interpolates the plate inside the window onto the finer grid.
void refine(const Grid& plate, const Window& window, const Grid& fine);
/// Averages the finer grid back onto plate cells.
void coarsen(const Grid& fine, const Grid& coarse);
/// How well the material conducts where it is hot.
void conductivity(const Grid& heat, const Grid& conductivity);
void flux_across_columns(const Grid& heat, const Grid& conductivity, const Grid& flux);
void flux_across_rows(const Grid& heat, const Grid& conductivity, const Grid& flux);
/// Fills a bell curve around `centre`, one value per cell of a finer grid that starts at `begin`.
void bell(double centre, double begin, double radius, const Grid& curve);
/// One explicit step: what flows in, and what the source adds.
void advance(const Grid& heat, const std::array<Grid, 2>& fluxes, const std::array<Grid, 2>& bells,
             double source_heat, const Grid& next);
/// Returns how much the window's solution changed where it overlaps its predecessor.
double change(const Grid& now, const Window& window, const Grid& before, const Window& old_window);
/// One step of the whole plate: cools, and spreads a little.
void cool(const Grid& plate, const Grid& next);
void paste(const Grid& coarse, const Window& window, const Grid& plate);
void fill(const Grid& grid, double value);
double sum(const Grid& grid);

template <class Store>
class Solver {
public:
    Solver(Store store, std::size_t threads)
        : store_(std::move(store)), team_(threads), plate_(store_.array(plate_cells, plate_cells)) {
        fill(plate_.view(), 0);
    }

    void step() {
        team_.for_each(source_count, [this](std::size_t index) { solve_patch(index); });
        auto next = store_.array(plate_cells, plate_cells);
        cool(plate_.view(), next.view());
        for (Patch& patch : patches_) {
            paste(patch.coarse.view(), patch.window, next.view());
            patch.coarse = {};
        }
        plate_ = std::move(next);
        ++step_;
    }

    /// Returns a number that depends on every cell of every step.
    [[nodiscard]] double checksum() const {
        double total = sum(plate_.view());
        for (const Patch& patch : patches_) total += patch.change;
        return total;
    }

private:
    using Array = decltype(std::declval<Store&>().array(1, 1));

    struct Patch {
        Window window;
        Array previous, coarse;
        double change = 0;
    };

    void solve_patch(std::size_t index) {
        Patch& patch = patches_[index];
        const Source source = source_at(index, step_);
        const Window window = hot_window(plate_.view(), source);
        const std::size_t rows = window.rows * refinement, columns = window.columns * refinement;

        Array heat = store_.array(rows, columns);
        refine(plate_.view(), window, heat.view());
        Array row_bell = store_.array(1, rows), column_bell = store_.array(1, columns);
        bell(source.row, static_cast<double>(window.top), source.radius, row_bell.view());
        bell(source.column, static_cast<double>(window.left), source.radius, column_bell.view());
        for (std::size_t substep = 0; substep < substeps; ++substep) {
            Array conducts = store_.array(rows, columns);
            conductivity(heat.view(), conducts.view());
            Array across_columns = store_.array(rows, columns + 1);
            flux_across_columns(heat.view(), conducts.view(), across_columns.view());
            Array across_rows = store_.array(rows + 1, columns);
            flux_across_rows(heat.view(), conducts.view(), across_rows.view());
            Array next = store_.array(rows, columns);
            advance(heat.view(), {across_columns.view(), across_rows.view()},
                    {row_bell.view(), column_bell.view()}, source.heat, next.view());
            heat = std::move(next);
        }
        if (step_ > 0) {
            patch.change += change(heat.view(), window, patch.previous.view(), patch.window);
        }
        patch.coarse = store_.array(window.rows, window.columns);
        coarsen(heat.view(), patch.coarse.view());
        patch.previous = std::move(heat);
        patch.window = window;
    }

    Store store_;
    Team team_;
    Array plate_;
    std::array<Patch, source_count> patches_;
    std::size_t step_ = 0;
};

}  // namespace cistern::cli
