// Runs the contract over memories and fits.

#include "contract/contract.hpp"

namespace cistern::test {

namespace {

using testing::Combine;
using testing::ValuesIn;

const auto name = [](const auto& info) { return name_of(info); };

}  // namespace

INSTANTIATE_TEST_SUITE_P(Every, PoolContract,
                         Combine(ValuesIn(all_memories()), ValuesIn(all_fits())), name);
INSTANTIATE_TEST_SUITE_P(Every, AnySizeContract,
                         Combine(ValuesIn(all_memories()), ValuesIn(any_size_fits())), name);
INSTANTIATE_TEST_SUITE_P(Every, WholeBlockContract,
                         Combine(ValuesIn(all_memories()), ValuesIn(whole_block_fits())), name);
INSTANTIATE_TEST_SUITE_P(Every, WholeBlocksOfAnySizeContract,
                         Combine(ValuesIn(all_memories()),
                                 ValuesIn({FitCase{"ExactFit", ExactFit{}},
                                           FitCase{"BestFit", BestFit{.max_waste = 0.25}}})),
                         name);

}  // namespace cistern::test
