// The ladder: own idle bytes, those of other pools on the same memory, callbacks, one last try, and
// an error that says who holds what.

#include <memory>
#include <stdexcept>
#include <vector>

#include "contract/contract.hpp"
#include "support/text.hpp"

namespace cistern::test {

namespace {

/// A memory with room for four blocks: simulated, or a user's own that returns nullptr.
struct SmallMemory {
    const char* name;
    Memory (*make)();
    friend void PrintTo(const SmallMemory& m, std::ostream* out) { *out << m.name; }
};

class OutOfMemoryLadder : public testing::TestWithParam<std::tuple<SmallMemory, FitCase>> {
protected:
    static constexpr std::size_t capacity = 4 * block_bytes;

    Pool make_pool(PoolOptions options = {}) {
        options.fit = std::get<1>(GetParam()).fit;
        return Pool{memory, std::move(options)};
    }
    static std::vector<Buffer> take(Pool& pool, int count) {
        std::vector<Buffer> lent;
        for (int i = 0; i < count; ++i) lent.push_back(pool.acquire(block_bytes));
        return lent;
    }
    /// The room that is left for a block, in blocks.
    static int room(Pool& pool) {
        std::vector<Buffer> lent;
        for (;;) {
            lent.push_back(pool.try_acquire(block_bytes));
            if (lent.back().empty()) return static_cast<int>(lent.size()) - 1;
        }
    }

    Memory memory = std::get<0>(GetParam()).make();
};

Memory simulated_with_room_for_four() { return Memory::simulated({.capacity = 4 * block_bytes}); }

Memory own_with_room_for_four() {
    auto source = std::make_shared<FailingSource>();
    source->set_capacity(4 * block_bytes);
    return Memory(source);
}

}  // namespace

TEST_P(OutOfMemoryLadder, LendsAllThereIs) {
    Pool pool = make_pool();

    const std::vector<Buffer> lent = take(pool, 4);

    EXPECT_EQ(pool.stats().held_bytes.now, capacity);
    EXPECT_EQ(pool.stats().failures, 0u);
}

TEST_P(OutOfMemoryLadder, ThrowsWhenAllIsLent) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 4);
    PoolStats expected = pool.stats();

    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);

    expected.failures += 1;
    EXPECT_EQ(pool.stats(), expected);
}

TEST_P(OutOfMemoryLadder, TryAcquireReturnsNothingWhenAllIsLent) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 4);
    PoolStats expected = pool.stats();

    const Buffer none = pool.try_acquire(block_bytes);

    EXPECT_TRUE(none.empty());
    EXPECT_EQ(none.size(), 0u);
    expected.failures += 1;
    EXPECT_EQ(pool.stats(), expected);
}

TEST_P(OutOfMemoryLadder, RecoversWhenABufferComesBack) {
    Pool pool = make_pool();
    std::vector<Buffer> lent = take(pool, 4);
    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);

    lent.pop_back();

    EXPECT_TRUE(hits(pool, block_bytes));
}

TEST_P(OutOfMemoryLadder, ThrowsForZeroedBytesToo) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 4);

    EXPECT_THROW((void)pool.acquire_zeroed(block_bytes), OutOfMemory);
    EXPECT_THROW((void)pool.array<char>(block_bytes), OutOfMemory);
    EXPECT_THROW((void)pool.zeros<char>(block_bytes), OutOfMemory);
    EXPECT_THROW((void)pool.vector<char>(block_bytes), OutOfMemory);

    EXPECT_EQ(pool.stats().lent_bytes.now, capacity);
}

TEST_P(OutOfMemoryLadder, FreesTheIdleBytesOfOtherPoolsOnTheSameMemory) {
    Pool hoarder = make_pool({.name = "hoarder"}), needy = make_pool({.name = "needy"});
    { const std::vector<Buffer> idle = take(hoarder, 3); }
    EXPECT_EQ(hoarder.stats().idle_bytes.now, 3 * block_bytes);

    const std::vector<Buffer> lent = take(needy, 4);

    EXPECT_EQ(needy.stats().lent_bytes.now, capacity);
    EXPECT_EQ(hoarder.stats().held_bytes.now, 0u);
    EXPECT_EQ(contradictions(hoarder.stats()), "");
    EXPECT_EQ(contradictions(needy.stats()), "");
}

TEST_P(OutOfMemoryLadder, LeavesWhatOtherPoolsLentAlone) {
    Pool other = make_pool({.name = "other"}), needy = make_pool({.name = "needy"});
    const std::vector<Buffer> theirs = take(other, 3);

    const Buffer last = needy.acquire(block_bytes);

    EXPECT_THROW((void)needy.acquire(block_bytes), OutOfMemory);
    EXPECT_EQ(other.stats().lent_bytes.now, 3 * block_bytes);
}

TEST_P(OutOfMemoryLadder, LeavesTheIdleBytesOfOtherMemoriesAlone) {
    Pool elsewhere{Memory::simulated(), {.fit = std::get<1>(GetParam()).fit}};
    Pool needy = make_pool();
    { const Buffer idle = elsewhere.acquire(block_bytes); }
    const std::vector<Buffer> lent = take(needy, 4);

    EXPECT_THROW((void)needy.acquire(block_bytes), OutOfMemory);

    EXPECT_EQ(elsewhere.stats().idle_bytes.now, block_bytes);
}

TEST_P(OutOfMemoryLadder, AsksCallbacksBeforeGivingUp) {
    Pool pool = make_pool();
    std::vector<Buffer> spare = take(pool, 4);
    std::vector<std::size_t> missing;
    pool.on_out_of_memory([&](std::size_t bytes) {
        missing.push_back(bytes);
        spare.clear();
    });

    const Buffer served = pool.acquire(block_bytes);

    EXPECT_FALSE(served.empty());
    ASSERT_EQ(missing.size(), 1u);
    EXPECT_GE(missing[0], block_bytes);
    EXPECT_EQ(pool.stats().failures, 0u);
}

TEST_P(OutOfMemoryLadder, ACallbackMayReleaseBuffersOfAnotherPool) {
    Pool other = make_pool({.name = "other"}), needy = make_pool({.name = "needy"});
    std::vector<Buffer> spare = take(other, 4);
    needy.on_out_of_memory([&](std::size_t) { spare.clear(); });

    const Buffer served = needy.acquire(block_bytes);

    EXPECT_FALSE(served.empty());
    EXPECT_EQ(other.stats().lent_bytes.now, 0u);
}

TEST_P(OutOfMemoryLadder, ACallbackMayUseThePool) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 4);
    int calls = 0;
    pool.on_out_of_memory([&](std::size_t) {
        ++calls;
        (void)pool.stats();
        (void)pool.explain();
        pool.trim();
        pool.set_limits(limits_of(pool.options()));
    });

    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);

    EXPECT_GE(calls, 1);
    EXPECT_EQ(contradictions(pool.stats()), "");
}

TEST_P(OutOfMemoryLadder, AsksEveryCallbackAndThrowsIfNoneHelps) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 4);
    int first = 0, second = 0;
    pool.on_out_of_memory([&](std::size_t) { ++first; });
    pool.on_out_of_memory([&](std::size_t) { ++second; });

    EXPECT_THROW((void)pool.acquire(block_bytes), OutOfMemory);
    EXPECT_TRUE(pool.try_acquire(block_bytes).empty());

    EXPECT_EQ(first, 2);
    EXPECT_EQ(second, 2);
    EXPECT_EQ(pool.stats().failures, 2u);
}

TEST_P(OutOfMemoryLadder, AnExceptionOfACallbackComesOutAndChangesNothing) {
    Pool pool = make_pool();
    std::vector<Buffer> lent = take(pool, 4);
    pool.on_out_of_memory([](std::size_t) { throw std::runtime_error("a user's"); });

    EXPECT_THROW((void)pool.acquire(block_bytes), std::runtime_error);

    EXPECT_EQ(pool.stats().lent_bytes.now, capacity);
    EXPECT_EQ(contradictions(pool.stats()), "");
    lent.pop_back();
    EXPECT_TRUE(hits(pool, block_bytes));
}

TEST_P(OutOfMemoryLadder, CallbacksAreAskedWhenALimitIsReachedToo) {
    Pool pool = make_pool({.max_bytes = 2 * block_bytes});
    std::vector<Buffer> spare = take(pool, 2);
    pool.on_out_of_memory([&](std::size_t) { spare.pop_back(); });

    const Buffer served = pool.acquire(block_bytes);

    EXPECT_EQ(spare.size(), 1u);
    EXPECT_EQ(pool.stats().held_bytes, (Gauge{2 * block_bytes, 2 * block_bytes}));
}

TEST_P(OutOfMemoryLadder, SaysWhatWasAskedWhatIsLentAndByWhichPool) {
    Pool pool = make_pool({.name = "fluid"}), other = make_pool({.name = "boundary"});
    const std::vector<Buffer> lent = take(pool, 3), elsewhere = take(other, 1);

    const std::string text = text_of<OutOfMemory>([&] { (void)pool.acquire(block_bytes); });

    EXPECT_TRUE(mentions_bytes(text, block_bytes)) << text;
    EXPECT_TRUE(mentions_bytes(text, 3 * block_bytes)) << text;
    EXPECT_TRUE(mentions(text, "lent")) << text;
    EXPECT_TRUE(mentions(text, "idle")) << text;
    EXPECT_TRUE(mentions(text, "fluid")) << text;
    EXPECT_TRUE(mentions(text, "boundary")) << text;
}

TEST_P(OutOfMemoryLadder, NamesTheLimitThatWasReached) {
    Pool pool = make_pool({.name = "small", .max_bytes = 2 * block_bytes});
    const std::vector<Buffer> lent = take(pool, 2);

    const std::string text = text_of<OutOfMemory>([&] { (void)pool.acquire(block_bytes); });

    EXPECT_TRUE(mentions(text, "max_bytes")) << text;
    EXPECT_TRUE(mentions_bytes(text, 2 * block_bytes)) << text;
    EXPECT_TRUE(mentions(text, "small")) << text;
}

TEST_P(OutOfMemoryLadder, ArraysAreHadTogetherOrNotAtAll) {
    Pool pool = make_pool();
    const std::vector<Buffer> lent = take(pool, 2);

    EXPECT_THROW((void)pool.arrays(shape<char>(block_bytes), shape<char>(block_bytes),
                                   shape<char>(block_bytes)),
                 OutOfMemory);

    EXPECT_EQ(pool.stats().lent_buffers.now, 2u);
    EXPECT_EQ(room(pool), 2);
}

TEST_P(OutOfMemoryLadder, TheBytesOfAnEndedPoolAreFreeForOthers) {
    {
        Pool ended = make_pool();
        const std::vector<Buffer> idle = take(ended, 4);
    }
    Pool pool = make_pool();

    EXPECT_EQ(room(pool), 4);
}

INSTANTIATE_TEST_SUITE_P(
    On, OutOfMemoryLadder,
    testing::Combine(testing::Values(SmallMemory{"Simulated", simulated_with_room_for_four},
                                     SmallMemory{"OwnSource", own_with_room_for_four}),
                     testing::ValuesIn(all_fits())),
    [](const auto& c) { return name_of(c); });

TEST_P(AnySizeContract, SizesBeyondAllMemoryAreOutOfMemory) {
    Pool pool = make_pool();
    const Buffer lent = pool.acquire(block_bytes);
    const std::uint64_t held = pool.stats().held_bytes.now;

    for (const std::size_t bytes : {no_limit, no_limit - 63, no_limit / 2, std::size_t{1} << 60}) {
        EXPECT_TRUE(pool.try_acquire(bytes).empty()) << bytes;
        EXPECT_THROW((void)pool.acquire(bytes), OutOfMemory) << bytes;
        EXPECT_THROW((void)pool.acquire_zeroed(bytes), OutOfMemory) << bytes;
    }

    EXPECT_EQ(pool.stats().lent_bytes.now, block_bytes);
    EXPECT_LE(pool.stats().held_bytes.now, held);
    expect_reconciled(pool);
}

TEST_P(AnySizeContract, RequestsThatNoIdleBytesCouldServeCostNobodyAny) {
    Pool pool = make_pool(), other = make_pool(),
         limited = make_pool({.max_bytes = 8 * block_bytes});
    for (Pool* each : {&pool, &other, &limited}) each->acquire(block_bytes).release();
    const auto idle = [](const Pool& one) { return one.stats().idle_bytes.now; };
    const std::uint64_t in_pool = idle(pool), in_other = idle(other), in_limited = idle(limited);

    for (const std::size_t bytes : {no_limit, no_limit / 2}) {
        EXPECT_THROW((void)pool.acquire(bytes), OutOfMemory);
        EXPECT_TRUE(pool.try_acquire(bytes).empty());
        EXPECT_TRUE(
            mentions(text_of<OutOfMemory>([&] { (void)limited.acquire(bytes); }), "max_bytes"));
    }
    EXPECT_TRUE(limited.try_acquire(9 * block_bytes).empty());

    EXPECT_EQ(idle(pool), in_pool);
    EXPECT_EQ(idle(other), in_other);
    EXPECT_EQ(idle(limited), in_limited);
}

TEST(OwnMemory, ThatFailsOnceIsAskedAgainAfterIdleBytesAreFreed) {
    auto source = std::make_shared<FailingSource>();
    Pool pool{Memory(source), {.fit = ExactFit{}}};
    { const Buffer idle = pool.acquire(64_KiB); }
    source->set_capacity(128_KiB);

    const Buffer served = pool.acquire(128_KiB);

    EXPECT_EQ(source->outstanding().bytes.load(), 128_KiB);
    EXPECT_EQ(pool.stats().idle_bytes.now, 0u);
}

TEST(OwnMemory, FailingAtEveryPointLeavesThePoolUsable) {
    for (std::uint64_t allowed = 0; allowed < 6; ++allowed) {
        auto source = std::make_shared<FailingSource>();
        {
            Pool pool{Memory(source), {.fit = BestFit{}}};
            source->fail_after(allowed);
            std::vector<Buffer> lent;
            for (int i = 0; i < 6; ++i) {
                lent.push_back(pool.try_acquire(64_KiB << (i % 3)));
                EXPECT_EQ(contradictions(pool.stats()), "");
            }
            EXPECT_EQ(pool.stats().acquires, allowed);
            EXPECT_EQ(pool.stats().failures, 6 - allowed);

            source->stop_failing();

            EXPECT_NO_THROW((void)pool.acquire(1_MiB));
        }
        EXPECT_EQ(source->outstanding().bytes.load(), 0u);
    }
}

namespace {

/// A user's memory that reports by throwing.
class ThrowingSource final : public FailingSource {
public:
    void* allocate(std::size_t bytes, std::size_t alignment) override {
        if (broken) throw std::runtime_error("the device is gone");
        void* const data = FailingSource::allocate(bytes, alignment);
        if (data == nullptr) throw std::bad_alloc();
        return data;
    }
    bool broken = false;
};

}  // namespace

TEST(OwnMemory, MaySayThatItHasNothingLeftByThrowing) {
    auto source = std::make_shared<ThrowingSource>();
    Pool pool{Memory(source), {.fit = BestFit{}}};
    source->set_capacity(64_KiB);
    const Buffer all = pool.acquire(64_KiB);

    EXPECT_THROW((void)pool.acquire(64_KiB), OutOfMemory);
    EXPECT_TRUE(pool.try_acquire(64_KiB).empty());

    EXPECT_EQ(pool.stats().failures, 2u);
}

TEST(OwnMemory, AnotherExceptionOfItPassesThroughAndChangesNothing) {
    auto source = std::make_shared<ThrowingSource>();
    Pool pool{Memory(source), {.fit = BestFit{}}};
    { const Buffer idle = pool.acquire(4_KiB); }
    const PoolStats before = pool.stats();
    source->broken = true;

    EXPECT_THROW((void)pool.acquire(64_KiB), std::runtime_error);

    EXPECT_EQ(pool.stats(), before);
    source->broken = false;
    EXPECT_EQ(pool.acquire(64_KiB).size(), 64_KiB);
}

}  // namespace cistern::test
