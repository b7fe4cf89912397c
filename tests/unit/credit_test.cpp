// What acquires earn, and what moves, joins and crossings cost.

#include "pool/credit.hpp"

#include <gtest/gtest.h>

namespace cistern::test {
namespace {

constexpr std::uint64_t most = 100;

TEST(Credit, BeginsFullAndEarnsUpToTheMost) {
    Credit credit;
    credit.earn(0, most);
    EXPECT_TRUE(credit.covers(100));
    credit.pay(100);

    credit.earn(30, most);
    EXPECT_TRUE(credit.covers(30));
    EXPECT_FALSE(credit.covers(31));
    credit.earn(1000, most);
    EXPECT_FALSE(credit.covers(101));
}

TEST(Credit, ForgetsWhatIsPaidBeyondWhatIsLeft) {
    Credit credit;
    credit.earn(0, most);
    credit.pay(250);

    credit.earn(10, most);

    EXPECT_TRUE(credit.covers(10));
}

TEST(Credit, HasToEarnFirstWhatIsPaidInFull) {
    Credit credit;
    credit.earn(0, most);
    credit.pay_in_full(150);
    EXPECT_FALSE(credit.covers(1));

    credit.earn(20, most);
    credit.pay_in_full(5);
    credit.earn(55, most);
    EXPECT_FALSE(credit.covers(1)) << "50 and 5 were owed";
    credit.earn(65, most);

    EXPECT_TRUE(credit.covers(10));
    EXPECT_FALSE(credit.covers(11));
}

}  // namespace
}  // namespace cistern::test
