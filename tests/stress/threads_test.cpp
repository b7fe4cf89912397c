// Threads that come and go, buffers that wander among them, more pools than a thread has slots.

#include "support/threads.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cistern/cistern.hpp"
#include "support/literals.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"
#include "support/scale.hpp"
#include "support/sources.hpp"

namespace cistern::test {

namespace {

/// A buffer and what was written into it.
struct Marked {
    Buffer buffer;
    std::uint64_t seed = 0;

    static Marked acquire(Pool& pool, std::size_t bytes, std::uint64_t seed) {
        Marked marked{pool.acquire(bytes), seed};
        write_marks(marked.buffer.data(), bytes, seed);
        return marked;
    }
    [[nodiscard]] bool intact() const {
        return buffer.empty() || has_marks(buffer.data(), buffer.size(), seed);
    }
};

/// A bounded queue between threads.
class Ring {
public:
    void put(Marked marked) {
        std::unique_lock hold(lock_);
        changed_.wait(hold, [&] { return queue_.size() < 16; });
        queue_.push_back(std::move(marked));
        changed_.notify_all();
    }
    Marked take() {
        std::unique_lock hold(lock_);
        changed_.wait(hold, [&] { return !queue_.empty(); });
        Marked marked = std::move(queue_.front());
        queue_.pop_front();
        changed_.notify_all();
        return marked;
    }

private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Marked> queue_;
};

thread_local std::vector<Marked> kept_to_the_end;

std::size_t some_size(std::uint64_t seed) {
    return 1 + scrambled(seed) % (std::size_t{64} << (scrambled(seed + 1) % 13));
}

void expect_all_returned(Pool& pool) {
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.lent_buffers.now, 0u);
    EXPECT_EQ(stats.lent_bytes.now, 0u);
    EXPECT_EQ(stats.acquires, stats.releases);
    EXPECT_EQ(contradictions_at_rest(stats, limits_of(pool.options())), "");
}

}  // namespace

TEST(Threads, AreBornAndDieWhileOthersHoldTheirBuffers) {
    Pool pool;
    std::mutex lock;
    std::vector<Marked> survivors;
    std::atomic<int> damaged{0};

    for (std::uint64_t generation = 0; generation < scaled(200); ++generation) {
        on_threads(3, [&](std::size_t i) {
            const std::uint64_t base = generation * 1000 + i * 100;
            std::vector<Marked> mine;
            for (std::uint64_t k = 0; k < 20; ++k) {
                mine.push_back(Marked::acquire(pool, some_size(base + k), base + k));
                if (k % 3 == 0) mine.erase(mine.begin());
            }
            const std::scoped_lock hold(lock);
            for (Marked& marked : mine) survivors.push_back(std::move(marked));
            while (survivors.size() > 50) {
                damaged += !survivors.front().intact();
                survivors.erase(survivors.begin());
            }
        });
    }

    for (const Marked& marked : survivors) damaged += !marked.intact();
    survivors.clear();
    EXPECT_EQ(damaged, 0);
    expect_all_returned(pool);
    EXPECT_EQ(pool.explain().threads, 1u) << "the magazines of dead threads are gone";
}

TEST(Threads, PassBuffersAlongARing) {
    constexpr std::size_t members = 4;
    const std::uint64_t laps = scaled(4000);
    Pool pool;
    std::array<Ring, members> rings;
    std::atomic<int> damaged{0};

    on_threads(members, [&](std::size_t i) {
        for (std::uint64_t k = 0; k < laps; ++k) {
            rings[i].put(Marked::acquire(pool, some_size(k * members + i), k * members + i));
            Marked received = rings[(i + 1) % members].take();
            damaged += !received.intact();
        }
    });

    EXPECT_EQ(damaged, 0);
    EXPECT_EQ(pool.stats().acquires, members * laps);
    expect_all_returned(pool);
}

TEST(Threads, OneProducesAndAnotherConsumesWithoutGrowing) {
    const std::uint64_t count = scaled(50'000);
    Pool pool;
    Ring ring;
    std::atomic<int> damaged{0};

    on_threads(2, [&](std::size_t i) {
        for (std::uint64_t k = 0; k < count; ++k) {
            if (i == 0) {
                ring.put(Marked::acquire(pool, 64_KiB, k));
            } else {
                damaged += !ring.take().intact();
            }
        }
    });

    EXPECT_EQ(damaged, 0);
    expect_all_returned(pool);
    EXPECT_LE(pool.stats().held_bytes.peak, 64_MiB) << "what the consumer releases serves again";
}

TEST(Threads, HandOverBuffersOfManySizesWithoutGrowing) {
    const std::uint64_t count = scaled(50'000);
    for (const std::chrono::milliseconds age : {forever, std::chrono::milliseconds{3'600'000}}) {
        Pool pool{Memory::host(), {.max_idle_age = age}};
        Ring ring;

        on_threads(2, [&](std::size_t i) {
            for (std::uint64_t k = 0; k < count; ++k) {
                if (i == 0) {
                    ring.put({pool.acquire(1 + scrambled(k) % 1_MiB)});
                } else {
                    static_cast<void>(ring.take());
                }
            }
        });

        expect_all_returned(pool);
        // At most 18 MiB are lent at once, 8 on average.
        EXPECT_LE(pool.stats().held_bytes.peak, 32_MiB)
            << "what the consumer releases serves again";
    }
}

TEST(Threads, PassOnWhatOthersHadToTakeFromThem) {
    for (const bool scratch : {false, true}) {
        SCOPED_TRACE(scratch);
        Pool pool;
        constexpr std::size_t count = 8, rounds = 8;
        std::array<Buffer, count> buffers;
        std::vector<std::size_t> kept;  // by the thread that releases, after each round
        std::barrier step{2};

        on_threads(2, [&](std::size_t i) {
            for (std::size_t round = 0; round < rounds; ++round) {
                if (i == 0) {
                    for (Buffer& buffer : buffers) buffer = pool.acquire(1_MiB);
                }
                step.arrive_and_wait();
                if (i == 1) {
                    for (Buffer& buffer : buffers) {
                        if (scratch) pool.acquire(4_KiB).release();
                        buffer.release();
                    }
                    kept.push_back(pool.explain().magazine_bytes);
                }
                step.arrive_and_wait();
            }
            if (i == 0) return;
            // As soon as it uses what it releases, it keeps as much as any thread.
            for (std::size_t round = 0; round < rounds; ++round) {
                for (Buffer& buffer : buffers) buffer = pool.acquire(1_MiB);
                for (Buffer& buffer : buffers) buffer.release();
            }
            EXPECT_GE(pool.explain().magazine_bytes, count * 1_MiB);
        });

        EXPECT_GE(kept.front(), count * 1_MiB);
        EXPECT_LE(kept.back(), 2_MiB) << "each block that it keeps has to be taken from it";
        EXPECT_LE(pool.stats().held_bytes.peak, (count + 3) * 1_MiB);
        expect_all_returned(pool);
    }
}

TEST(Threads, InTurnEndWithBytesOfTheirOwn) {
    Pool pool;
    constexpr std::size_t count = 16, rounds = 100;
    std::array<std::size_t, 2> kept{};
    std::barrier step{2};

    on_threads(2, [&](std::size_t i) {
        std::vector<Buffer> mine(count);
        for (std::size_t round = 0; round < rounds; ++round) {
            if (round % 2 == i) {
                for (Buffer& buffer : mine) buffer = pool.acquire(256_KiB);
                for (Buffer& buffer : mine) buffer.release();
                kept[i] = pool.explain().magazine_bytes;
            }
            step.arrive_and_wait();
        }
    });

    const std::size_t all = 2 * count * 256_KiB;
    EXPECT_GE(kept[0], all) << "neither takes the other's";
    EXPECT_GE(kept[1], all);
    EXPECT_LE(pool.stats().held_bytes.peak, all + 1_MiB);
    expect_all_returned(pool);
}

TEST(Threads, ThatRestCostAPoolNothing) {
    const std::uint64_t count = scaled(20'000);
    Pool pool;
    Ring ring;
    constexpr std::size_t resting = 48;
    std::barrier all_have_begun{static_cast<std::ptrdiff_t>(resting + 2)},
        all_have_ended{static_cast<std::ptrdiff_t>(resting + 2)};

    on_threads(resting + 2, [&](std::size_t i) {
        pool.acquire(1_KiB).release();
        all_have_begun.arrive_and_wait();
        for (std::uint64_t k = 0; k < count && i < 2; ++k) {
            if (i == 0) {
                ring.put({pool.acquire(1 + scrambled(k) % 64_KiB)});
            } else {
                static_cast<void>(ring.take());
            }
        }
        all_have_ended.arrive_and_wait();
    });

    expect_all_returned(pool);
    EXPECT_LE(pool.stats().held_bytes.peak, 8_MiB) << "not as much for each thread that there is";
}

TEST(Threads, EndWithBuffersInThreadLocals) {
    Pool pool;

    for (std::uint64_t round = 0; round < scaled(100); ++round) {
        on_threads(2, [&](std::size_t i) {
            for (std::uint64_t k = 0; k < 5; ++k) {
                kept_to_the_end.push_back(Marked::acquire(pool, some_size(k + i), k));
            }
            (void)pool.acquire(1_KiB);
        });
    }

    expect_all_returned(pool);
}

TEST(Threads, EndWithBuffersInThreadLocalsMadeBeforeThePoolWasKnown) {
    Pool pool;

    std::thread([&] {
        kept_to_the_end.clear();  // constructs it first, so that it is destroyed last
        kept_to_the_end.push_back(Marked::acquire(pool, 64_KiB, 1));
        (void)pool.acquire(1_KiB);
    }).join();

    expect_all_returned(pool);
}

TEST(Threads, UseMorePoolsThanThereAreSlots) {
    constexpr std::size_t count = 50;
    std::vector<Pool> pools;
    for (std::size_t i = 0; i < count; ++i) {
        pools.emplace_back(Memory::host(),
                           PoolOptions{.name = "pool of many " + std::to_string(i)});
    }
    std::atomic<int> damaged{0};

    on_threads(3, [&](std::size_t t) {
        std::vector<Marked> lent(count);
        for (std::uint64_t k = 0; k < scaled(20'000); ++k) {
            const std::size_t i = scrambled(k * 3 + t) % count;
            damaged += !lent[i].intact();
            lent[i] = Marked::acquire(pools[i], some_size(k), k * 3 + t);
        }
    });

    EXPECT_EQ(damaged, 0);
    for (Pool& pool : pools) expect_all_returned(pool);
}

TEST(Threads, MakeAndEndPoolsAllTheTime) {
    auto source = std::make_shared<FailingSource>();
    const Memory memory{source};
    std::mutex lock;
    std::vector<Marked> orphans;  // of pools that have ended
    std::atomic<int> damaged{0};

    on_threads(3, [&](std::size_t t) {
        for (std::uint64_t k = 0; k < scaled(500); ++k) {
            Pool pool{k % 2 == 0 ? memory : Memory::host(), {}};
            std::vector<Marked> lent;
            for (std::uint64_t i = 0; i < 6; ++i) {
                lent.push_back(Marked::acquire(pool, some_size(k + i), k * 9 + t));
            }
            const std::scoped_lock hold(lock);
            orphans.push_back(std::move(lent[2]));
            if (orphans.size() > 20) {
                damaged += !orphans.front().intact();
                orphans.erase(orphans.begin());
            }
        }
    });

    for (const Marked& orphan : orphans) damaged += !orphan.intact();
    orphans.clear();
    EXPECT_EQ(damaged, 0);
    EXPECT_EQ(source->outstanding().bytes.load(), 0u);
    EXPECT_EQ(source->outstanding().mistakes.load(), 0u);
}

/// Pools of one slot take turns in it: one goes while a thread looks whose magazine is there.
TEST(Threads, UsePoolsWhoseNeighboursGo) {
    const Memory memory = Memory::simulated();
    std::vector<Pool> pools;
    for (int i = 0; i < 70; ++i) pools.emplace_back(memory);
    std::atomic<Pool*> given{nullptr};
    std::atomic<bool> stop{false};
    std::thread ends([&] {
        while (!stop) delete given.exchange(nullptr);
    });
    for (std::uint64_t k = 0; k < scaled(10'000); ++k) {
        auto* const going = new Pool(memory);
        going->acquire(1_KiB).release();
        given = going;
        for (std::uint64_t i = 0; i < 4; ++i) {
            pools[scrambled(k + i) % pools.size()].acquire(1_KiB).release();
        }
        if (k % 100 == 0) pools[k / 100 % pools.size()].trim();
        while (given != nullptr) std::this_thread::yield();
    }
    stop = true;
    ends.join();
    for (Pool& pool : pools) expect_all_returned(pool);
}

TEST(Threads, TrimAndChangeLimitsUnderEachOther) {
    Pool pool;
    std::atomic<int> damaged{0};
    {
        const Meanwhile trims(
            [&] { pool.trim(scrambled(reinterpret_cast<std::uintptr_t>(&pool)) % 4_MiB); });
        const Meanwhile limits([&, k = std::uint64_t{0}]() mutable {
            pool.set_limits({.max_idle_bytes = scrambled(++k) % 8_MiB});
        });
        on_threads(2, [&](std::size_t t) {
            std::vector<Marked> lent(8);
            for (std::uint64_t k = 0; k < scaled(20'000); ++k) {
                Marked& marked = lent[scrambled(k + t) % lent.size()];
                damaged += !marked.intact();
                marked = {};
                marked = Marked::acquire(pool, some_size(k * 2 + t), k * 2 + t);
            }
        });
    }

    EXPECT_EQ(damaged, 0);
    expect_all_returned(pool);
}

/// Who runs out asks other pools for what they keep, also those that are just going.
TEST(Threads, RunOutWhileAnotherPoolGoes) {
    const Memory memory = Memory::simulated({.capacity = 8_MiB});
    Pool pool{memory};
    for (std::size_t i = 0; i < scaled(1000); ++i) {
        Buffer last;
        {
            Pool going{memory};
            last = going.acquire(1_MiB);
        }
        std::atomic<int> ready{0};
        const auto together = [&ready] {
            for (++ready; ready != 2;) std::this_thread::yield();
        };
        std::thread other([&] {
            together();
            last.release();
        });
        together();
        EXPECT_TRUE(pool.try_acquire(16_MiB).empty());
        other.join();
    }
    EXPECT_FALSE(pool.try_acquire(7_MiB).empty()) << "all is back";
}

TEST(Threads, RunOutTogetherAndRecover) {
    Pool pool{Memory::host(), {.max_bytes = 2_MiB}};
    std::atomic<std::uint64_t> failures{0}, served{0};

    on_threads(4, [&](std::size_t t) {
        std::vector<Buffer> lent;
        for (std::uint64_t k = 0; k < scaled(5'000); ++k) {
            Buffer buffer = pool.try_acquire(some_size(k * 4 + t));
            ++(buffer.empty() ? failures : served);
            if (!buffer.empty()) lent.push_back(std::move(buffer));
            if (lent.size() > 8) lent.erase(lent.begin());
        }
    });

    EXPECT_EQ(pool.stats().failures, failures);
    EXPECT_EQ(pool.stats().acquires, served);
    EXPECT_LE(pool.stats().held_bytes.peak, 2_MiB);
    expect_all_returned(pool);
    EXPECT_NO_THROW((void)pool.acquire(2_MiB));
}

}  // namespace cistern::test
