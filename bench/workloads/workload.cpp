#include "workload.hpp"

#include <array>
#include <string>

#include "actors.hpp"
#include "cells.hpp"
#include "cistern/error.hpp"
#include "einsum.hpp"
#include "fluid.hpp"

namespace cistern::workloads {

namespace {

constexpr std::array workloads{cells, fluid, einsum, actors};
constexpr std::array<std::string_view, 3> stores{"cistern", "malloc", "seed"};
constexpr std::array<std::string_view, 3> scales{"small", "medium", "recorded"};

[[noreturn]] void fail(std::string_view kind, std::string_view name, const std::string& known) {
    throw InvalidArgument("no " + std::string(kind) + " '" + std::string(name) +
                          "'; there are: " + known);
}

std::size_t index_of(std::string_view kind, std::string_view name,
                     std::span<const std::string_view> names) {
    std::string known;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return i;
        known += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    fail(kind, name, known);
}

}  // namespace

std::span<const Workload> all() { return workloads; }

const Workload& find(std::string_view name) {
    std::array<std::string_view, workloads.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = workloads[i].name;
    return workloads[index_of("workload", name, names)];
}

std::string_view name_of(Store store) { return stores[static_cast<std::size_t>(store)]; }
std::string_view name_of(Scale scale) { return scales[static_cast<std::size_t>(scale)]; }

Store store_named(std::string_view name) {
    return static_cast<Store>(index_of("store", name, stores));
}
Scale scale_named(std::string_view name) {
    return static_cast<Scale>(index_of("scale", name, scales));
}

}  // namespace cistern::workloads
