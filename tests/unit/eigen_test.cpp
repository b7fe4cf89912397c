// Eigen as a client: maps over pool arrays compute what plain matrices compute.

#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "cistern/cistern.hpp"

namespace cistern::test {

namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<RowMajor, Eigen::Aligned64>;

Map mapped(const Array<double, 2>& a) {
    return {a.data(), static_cast<Eigen::Index>(a.extent(0)),
            static_cast<Eigen::Index>(a.extent(1))};
}

Eigen::Map<Eigen::VectorXd, Eigen::Aligned64> mapped(const Array<double, 1>& a) {
    return {a.data(), static_cast<Eigen::Index>(a.size())};
}

}  // namespace

TEST(EigenOnPoolArrays, MultipliesAsPlainEigenDoes) {
    Pool pool;
    for (const int n : {3, 17, 64, 130}) {
        const RowMajor a = RowMajor::Random(n, n + 5), b = RowMajor::Random(n + 5, 2 * n);
        auto [x, y, z] = pool.arrays(shape<double>(n, n + 5), shape<double>(n + 5, 2 * n),
                                     shape<double>(n, 2 * n));
        mapped(x) = a;
        mapped(y) = b;

        mapped(z).noalias() = mapped(x) * mapped(y);

        EXPECT_TRUE(mapped(z).isApprox(a * b)) << "n = " << n;
        EXPECT_EQ(z(n - 1, 2 * n - 1), mapped(z)(n - 1, 2 * n - 1));
    }
    EXPECT_EQ(pool.stats().lent_buffers.now, 0u);
}

TEST(EigenOnPoolArrays, SolvesAsPlainEigenDoes) {
    Pool pool;
    const RowMajor m = RowMajor::Random(50, 50) + 50 * RowMajor::Identity(50, 50);
    const Eigen::VectorXd v = Eigen::VectorXd::Random(50);
    auto [a, b, x] = pool.arrays(shape<double>(50, 50), shape<double>(50), shape<double>(50));
    mapped(a) = m;
    mapped(b) = v;

    mapped(x) = mapped(a).partialPivLu().solve(mapped(b));

    EXPECT_TRUE((m * mapped(x)).isApprox(v));
}

TEST(EigenOnPoolArrays, IteratesOnTheSameBytes) {
    Pool pool;
    const Eigen::MatrixXd step = 0.1 * Eigen::MatrixXd::Random(40, 40);
    Eigen::VectorXd plain = Eigen::VectorXd::Ones(40);
    auto state = pool.array<double>(40);
    mapped(state).setOnes();

    for (int i = 0; i < 100; ++i) {
        auto next = pool.array<double>(40);
        mapped(next).noalias() = step * mapped(state);
        state = std::move(next);
        plain = (step * plain).eval();
    }

    EXPECT_TRUE(mapped(state).isApprox(plain));
    EXPECT_EQ(pool.stats().misses, 2u);
    EXPECT_EQ(pool.stats().hits, 99u);
}

TEST(EigenOnPoolArrays, UsesAPooledVectorAsStorage) {
    Pool pool;
    std::vector<double, PoolAllocator<double>> storage(600, 1.5, PoolAllocator<double>{pool});

    const Eigen::Map<Eigen::MatrixXd> matrix(storage.data(), 20, 30);

    EXPECT_DOUBLE_EQ(matrix.sum(), 900.0);
    EXPECT_DOUBLE_EQ((matrix * matrix.transpose())(3, 4), 30 * 2.25);
}

}  // namespace cistern::test
