// xtensor as a client: adapted pool arrays, and containers that allocate from a pool.

#include "xtensor/xtensor.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cistern/cistern.hpp"
#include "xtensor/xadapt.hpp"
#include "xtensor/xarray.hpp"
#include "xtensor/xbuilder.hpp"
#include "xtensor/xmath.hpp"
#include "xtensor/xnoalias.hpp"
#include "xtensor/xview.hpp"

namespace cistern::test {

namespace {

template <std::size_t Rank>
auto adapted(const Array<double, Rank>& a) {
    return xt::adapt(a.data(), a.size(), xt::no_ownership(), a.shape());
}

using PooledTensor = xt::xtensor<double, 2, xt::layout_type::row_major, PoolAllocator<double>>;

}  // namespace

TEST(XtensorOnPoolArrays, ReadsAndWritesTheSameElements) {
    Pool pool;
    const auto a = pool.zeros<double>(4, 5);
    auto x = adapted(a);

    x(2, 3) = 7.0;
    a(3, 4) = 9.0;

    EXPECT_EQ(a(2, 3), 7.0);
    EXPECT_EQ(x(3, 4), 9.0);
    EXPECT_EQ(x.shape(0), 4u);
    EXPECT_EQ(x.shape(1), 5u);
}

TEST(XtensorOnPoolArrays, ComputesAsPlainXtensorDoes) {
    Pool pool;
    const xt::xtensor<double, 2> left = xt::arange<double>(0, 60).reshape({6, 10});
    const xt::xtensor<double, 2> right = xt::ones<double>({6, 10}) * 3.0;
    auto [a, b, c] = pool.arrays(shape<double>(6, 10), shape<double>(6, 10), shape<double>(6, 10));
    auto x = adapted(a), y = adapted(b), z = adapted(c);
    x = left;
    y = right;

    xt::noalias(z) = xt::sin(x) * y + 2.0;

    const xt::xtensor<double, 2> expected = xt::sin(left) * right + 2.0;
    EXPECT_TRUE(xt::allclose(z, expected));
    EXPECT_DOUBLE_EQ(xt::sum(x)(), 1770.0);
    EXPECT_TRUE(xt::allclose(xt::view(z, 2), xt::view(expected, 2)));
}

TEST(XtensorContainers, AllocateFromAPool) {
    const PoolStats before = default_pool().stats();
    {
        PooledTensor a = xt::ones<double>({100, 200});
        PooledTensor b = a * 2.0 + 1.0;
        const PooledTensor c = xt::transpose(b);
        a.resize({300, 300});
        EXPECT_EQ(c.shape(0), 200u);
        EXPECT_DOUBLE_EQ(xt::sum(c)(), 60000.0);
        EXPECT_GE(default_pool().stats().acquires, before.acquires + 3);
    }

    EXPECT_EQ(default_pool().stats().lent_buffers.now, before.lent_buffers.now);
}

}  // namespace cistern::test
