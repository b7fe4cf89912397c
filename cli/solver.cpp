// The arithmetic of the demo: nonlinear heat conduction by finite volumes, explicit in time.

#include "solver.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cistern::cli {

namespace {

constexpr double fine_step = 0.2;  // time step over squared cell of a window; below 1/4 is stable
constexpr double plate_step = fine_step * substeps / (refinement * refinement);
constexpr double cooling = 0.92;
constexpr double hot = 0.02;                               // a cell above this belongs in a window
constexpr std::size_t least_reach = 32, most_reach = 224;  // of a window, from its source

/// Returns [centre - reach, centre + reach] within the plate.
std::pair<std::size_t, std::size_t> around(double centre, std::size_t reach) {
    const auto cell = static_cast<std::size_t>(std::clamp(centre, 0.0, plate_cells - 1.0));
    return {cell > reach ? cell - reach : 0, std::min(cell + reach + 1, plate_cells)};
}

}  // namespace

Source source_at(std::size_t index, std::size_t step) {
    const double which = static_cast<double>(index) + 1;
    const double time = static_cast<double>(step) * 0.02 + which;
    const double middle = plate_cells / 2.0, reach = plate_cells * 0.4;
    return {.row = middle + reach * std::sin(time * (1 + 0.23 * which)),
            .column = middle + reach * std::cos(time * (2 - 0.17 * which)),
            .radius = 8 + 4 * which + 4 * std::sin(3 * time),
            .heat = 0.3};
}

Window hot_window(const Grid& plate, const Source& source) {
    const auto [near_top, near_bottom] = around(source.row, least_reach);
    const auto [near_left, near_right] = around(source.column, least_reach);
    const auto [far_top, far_bottom] = around(source.row, most_reach);
    const auto [far_left, far_right] = around(source.column, most_reach);
    std::size_t top = near_top, bottom = near_bottom, left = near_left, right = near_right;
    for (std::size_t i = far_top; i < far_bottom; ++i) {
        for (std::size_t j = far_left; j < far_right; ++j) {
            if (plate(i, j) < hot) continue;
            top = std::min(top, i);
            bottom = std::max(bottom, i + 1);
            left = std::min(left, j);
            right = std::max(right, j + 1);
        }
    }
    return {.top = top, .left = left, .rows = bottom - top, .columns = right - left};
}

void refine(const Grid& plate, const Window& window, const Grid& fine) {
    constexpr double share = 1.0 / refinement;
    for (std::size_t i = 0; i < fine.extent(0); ++i) {
        const std::size_t row = window.top + i / refinement;
        const std::size_t below = std::min(row + 1, plate_cells - 1);
        const double down = static_cast<double>(i % refinement) * share;
        for (std::size_t j = 0; j < window.columns; ++j) {
            const std::size_t column = window.left + j;
            const std::size_t after = std::min(column + 1, plate_cells - 1);
            const double first = (1 - down) * plate(row, column) + down * plate(below, column);
            const double second = (1 - down) * plate(row, after) + down * plate(below, after);
            for (std::size_t k = 0; k < refinement; ++k) {
                const double right = static_cast<double>(k) * share;
                fine(i, j * refinement + k) = (1 - right) * first + right * second;
            }
        }
    }
}

void coarsen(const Grid& fine, const Grid& coarse) {
    for (std::size_t i = 0; i < coarse.extent(0); ++i) {
        for (std::size_t j = 0; j < coarse.extent(1); ++j) {
            double total = 0;
            for (std::size_t k = 0; k < refinement; ++k) {
                for (std::size_t l = 0; l < refinement; ++l) {
                    total += fine(i * refinement + k, j * refinement + l);
                }
            }
            coarse(i, j) = total / (refinement * refinement);
        }
    }
}

void conductivity(const Grid& heat, const Grid& conductivity) {
    std::transform(heat.begin(), heat.end(), conductivity.begin(),
                   [](double u) { return 1 / (1 + u * u); });
}

void flux_across_columns(const Grid& heat, const Grid& conductivity, const Grid& flux) {
    const std::size_t columns = heat.extent(1);
    for (std::size_t i = 0; i < heat.extent(0); ++i) {
        const double* const u = &heat(i, 0);
        const double* const k = &conductivity(i, 0);
        double* const f = &flux(i, 0);
        f[0] = f[columns] = 0;
        for (std::size_t j = 1; j < columns; ++j) {
            f[j] = 0.5 * (k[j - 1] + k[j]) * (u[j] - u[j - 1]);
        }
    }
}

void flux_across_rows(const Grid& heat, const Grid& conductivity, const Grid& flux) {
    const std::size_t rows = heat.extent(0), columns = heat.extent(1);
    std::fill_n(&flux(0, 0), columns, 0.0);
    std::fill_n(&flux(rows, 0), columns, 0.0);
    for (std::size_t i = 1; i < rows; ++i) {
        const double *const u = &heat(i, 0), *const above = &heat(i - 1, 0);
        const double *const k = &conductivity(i, 0), *const k_above = &conductivity(i - 1, 0);
        double* const f = &flux(i, 0);
        for (std::size_t j = 0; j < columns; ++j)
            f[j] = 0.5 * (k_above[j] + k[j]) * (u[j] - above[j]);
    }
}

void bell(double centre, double begin, double radius, const Grid& curve) {
    for (std::size_t i = 0; i < curve.size(); ++i) {
        const double distance = begin + static_cast<double>(i) / refinement - centre;
        curve(0, i) = std::exp(-0.5 * distance * distance / (radius * radius));
    }
}

void advance(const Grid& heat, const std::array<Grid, 2>& fluxes, const std::array<Grid, 2>& bells,
             double source_heat, const Grid& next) {
    const auto& [across_columns, across_rows] = fluxes;
    const double* const along = bells[1].data();
    for (std::size_t i = 0; i < heat.extent(0); ++i) {
        const double* const u = &heat(i, 0);
        const double* const right = &across_columns(i, 0);
        const double *const up = &across_rows(i, 0), *const down = &across_rows(i + 1, 0);
        const double added = source_heat * bells[0](0, i);
        double* const result = &next(i, 0);
        for (std::size_t j = 0; j < heat.extent(1); ++j) {
            const double inflow = right[j + 1] - right[j] + down[j] - up[j];
            result[j] = u[j] + fine_step * inflow + added * along[j];
        }
    }
}

double change(const Grid& now, const Window& window, const Grid& before, const Window& old_window) {
    const std::size_t top = std::max(window.top, old_window.top);
    const std::size_t left = std::max(window.left, old_window.left);
    const std::size_t bottom = std::min(window.top + window.rows, old_window.top + old_window.rows);
    const std::size_t right =
        std::min(window.left + window.columns, old_window.left + old_window.columns);
    double total = 0;
    for (std::size_t i = top * refinement; i < bottom * refinement; ++i) {
        for (std::size_t j = left * refinement; j < right * refinement; ++j) {
            total +=
                std::abs(now(i - window.top * refinement, j - window.left * refinement) -
                         before(i - old_window.top * refinement, j - old_window.left * refinement));
        }
    }
    return total;
}

void cool(const Grid& plate, const Grid& next) {
    constexpr std::size_t last = plate_cells - 1;
    for (std::size_t i = 0; i <= last; ++i) {
        const std::size_t above = i == 0 ? 0 : i - 1, below = std::min(i + 1, last);
        for (std::size_t j = 0; j <= last; ++j) {
            const std::size_t before = j == 0 ? 0 : j - 1, after = std::min(j + 1, last);
            const double spread = plate(above, j) + plate(below, j) + plate(i, before) +
                                  plate(i, after) - 4 * plate(i, j);
            next(i, j) = cooling * (plate(i, j) + plate_step * spread);
        }
    }
}

void paste(const Grid& coarse, const Window& window, const Grid& plate) {
    for (std::size_t i = 0; i < window.rows; ++i) {
        for (std::size_t j = 0; j < window.columns; ++j) {
            plate(window.top + i, window.left + j) = cooling * coarse(i, j);
        }
    }
}

void fill(const Grid& grid, double value) { std::fill(grid.begin(), grid.end(), value); }

double sum(const Grid& grid) { return std::accumulate(grid.begin(), grid.end(), 0.0); }

}  // namespace cistern::cli
