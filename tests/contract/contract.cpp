// Runs the contract over memories and fits.

#include "contract/contract.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace cistern::test {

namespace {

using testing::Combine;
using testing::ValuesIn;

const auto name = [](const auto& info) { return name_of(info); };

}  // namespace

bool PoolContract::counts_to_the_byte() {
    static constexpr std::array<std::string_view, 20> tests = {
        "ABufferThatWasLentIsNotOld",
        "CountsTheFirstRequestAsAMiss",
        "EverythingReturnsWhenAnExceptionPasses",
        "KeepsManyIdleBlocksForManyBorrowers",
        "KeepsReleasedBytesIdle",
        "KeepsWhatIsYoungerThanMaxIdleAge",
        "LendsTheSameBytesAgain",
        "LendsZeroesFromBytesThatWereUsedBefore",
        "LetsGoWhatWasIdleForMaxIdleAge",
        "NeverKeepsABufferLargerThanMaxBufferBytes",
        "ReleaseEmptiesTheBuffer",
        "RemembersItsPeaks",
        "ServesEverySizeAgainFromWhatWasReleased",
        "SetLimitsBelowWhatIsLentIsRefusedAndChangesNothing",
        "TakesBackOnOneThreadWhatItLentOnAnother",
        "TrimGivesBackAllIdleBytes",
        "TrimLeavesWhatIsLentAlone",
        "TrimOfNothingGivesBackNothing",
        "TrimReachesTheBytesThatOtherThreadsKeep",
        "WipesEveryTime",
    };
    const std::string_view title =
        testing::UnitTest::GetInstance()->current_test_info()->name();  // Test/Memory_Fit
    return std::ranges::find(tests, title.substr(0, title.find('/'))) != tests.end();
}

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
