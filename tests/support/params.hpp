#pragma once
// The memories and fits that the contract holds for, each with a name for the test's title.

#include <functional>
#include <memory>
#include <memory_resource>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cistern/pool.hpp"
#include "support/literals.hpp"
#include "support/sources.hpp"

namespace cistern::test {

/// A memory and, where it can tell, what it has handed out.
struct MemoryUnderTest {
    Memory memory;
    std::shared_ptr<const void> keep_alive;
    const Outstanding* outstanding = nullptr;
};

struct MemoryCase {
    const char* name;
    MemoryUnderTest (*make)();
    friend void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.name; }
};

struct FitCase {
    const char* name;
    Fit fit;
    friend void PrintTo(const FitCase& c, std::ostream* out) { *out << c.name; }
};

/// The size of the blocks of the FixedBlock case; what tests over all fits ask for.
inline constexpr std::size_t block_bytes = std::size_t{64} << 10;

inline std::vector<MemoryCase> all_memories() {
    std::vector<MemoryCase> memories{
        {"Host",
         [] {
             return MemoryUnderTest{Memory::host(), nullptr};
         }},
        {"HostWithoutHugePages",
         [] {
             return MemoryUnderTest{Memory::host({.huge_pages = false}), nullptr};
         }},
        {"PmrNewDelete",
         [] {
             auto resource = std::make_shared<CountingResource>();
             return MemoryUnderTest{Memory::from(*resource), resource, &resource->outstanding()};
         }},
        {"OwnSource",
         [] {
             auto source = std::make_shared<FailingSource>();
             return MemoryUnderTest{Memory(source), source, &source->outstanding()};
         }},
        {"Simulated",
         [] {
             return MemoryUnderTest{Memory::simulated(), nullptr};
         }},
    };
    if (!cuda_available()) return memories;
    memories.push_back({"Device", [] { return MemoryUnderTest{Memory::device(), nullptr}; }});
    memories.push_back({"Pinned", [] { return MemoryUnderTest{Memory::pinned(), nullptr}; }});
    memories.push_back({"Managed", [] { return MemoryUnderTest{Memory::managed(), nullptr}; }});
    return memories;
}

inline std::vector<FitCase> whole_block_fits() {
    return {{"ExactFit", ExactFit{}},
            {"BestFit", BestFit{.max_waste = 0.25}},
            {"FixedBlock", FixedBlock{.bytes = block_bytes}}};
}

/// The fits that serve requests of any size.
inline std::vector<FitCase> any_size_fits() {
    return {
        {"Elastic", Elastic{}}, {"ExactFit", ExactFit{}}, {"BestFit", BestFit{.max_waste = 0.25}}};
}

inline std::vector<FitCase> all_fits() {
    return {{"Elastic", Elastic{}},
            {"ExactFit", ExactFit{}},
            {"BestFit", BestFit{.max_waste = 0.25}},
            {"FixedBlock", FixedBlock{.bytes = block_bytes}}};
}

using MemoryAndFit = std::tuple<MemoryCase, FitCase>;

/// Names a case as "Host_Elastic".
template <class Info>
std::string name_of(const Info& info) {
    return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

}  // namespace cistern::test
