// The pool against the reference over long random sequences. CISTERN_MODEL_OPS says how long,
// CISTERN_SEED repeats a failure.

#include "stress/model.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "support/scale.hpp"

namespace cistern::test {

namespace {

/// Runs one model of `steps` steps; returns what went wrong.
std::string run_model(std::uint64_t seed, std::uint64_t steps) {
    SeededChoices choices(seed);
    std::shared_ptr<const void> keep_alive;
    const Outstanding* outstanding = nullptr;
    {
        Model model(choices);
        keep_alive = model.setup().keep_alive;
        outstanding = model.setup().outstanding;
        for (std::uint64_t i = 0; i < steps; ++i) {
            const std::string wrong = model.step();
            if (!wrong.empty()) return "step " + std::to_string(i) + " " + wrong;
        }
    }
    if (outstanding == nullptr) return "";
    return outstanding->bytes == 0 && outstanding->mistakes == 0 ? "" : "the memory lost bytes";
}

}  // namespace

TEST(ModelTest, AgreesWithTheReferenceAfterEveryStep) {
    const std::uint64_t steps = amount("CISTERN_MODEL_OPS", 200'000), steps_each = 500;
    const std::uint64_t first_seed = seed_or(1);

    for (std::uint64_t done = 0, seed = first_seed; done < steps; done += steps_each, ++seed) {
        const std::string wrong = run_model(seed, steps_each);
        ASSERT_EQ(wrong, "") << "repeat with CISTERN_SEED=" << seed;
    }
}

namespace {

/// Buffers on their way from one thread to another.
class Exchange {
public:
    struct Parcel {
        Buffer buffer;
        std::uint64_t seed;
    };
    void put(Parcel parcel) {
        const std::scoped_lock hold(lock_);
        parcels_.push_back(std::move(parcel));
    }
    std::optional<Parcel> take() {
        const std::scoped_lock hold(lock_);
        if (parcels_.empty()) return std::nullopt;
        Parcel parcel = std::move(parcels_.back());
        parcels_.pop_back();
        return parcel;
    }

private:
    std::mutex lock_;
    std::vector<Parcel> parcels_;
};

/// What one of several threads does, and its part of the accounts.
class Worker {
public:
    Worker(Pool pool, const Setup& setup, Exchange& exchange, std::uint64_t seed)
        : pool_(std::move(pool)),
          setup_(setup),
          exchange_(exchange),
          choices_(seed),
          seed_(seed << 32) {}

    void work(std::uint64_t steps) {
        for (std::uint64_t i = 0; i < steps && wrong_.empty(); ++i) {
            const std::uint64_t choice = choices_.below(1000);
            if (lent_.size() > 24) {
                release();
            } else if (choice < 450) {
                acquire();
            } else if (choice < 730) {
                release();
            } else if (choice < 750) {
                grow();
            } else if (choice < 850) {
                send();
            } else if (choice < 950) {
                receive();
            } else if (choice < 960) {
                pool_.trim(choices_.size_below(4_MiB));
            } else if (choice < 990) {
                wrong_ += contradictions(pool_.stats(), limits_of(setup_.options));
            } else if (choice < 995) {
                (void)pool_.explain();
            } else {
                pool_.set_limits(limits_of(setup_.options));  // a pass through all magazines
            }
        }
    }
    [[nodiscard]] const Ledger& ledger() const { return ledger_; }
    [[nodiscard]] const std::string& wrong() const { return wrong_; }
    std::vector<Exchange::Parcel>& lent() { return lent_; }

private:
    void acquire() {
        const bool again = last_released_ != 0 && choices_.one_in(3);  // as a loop does
        const std::size_t bytes =
            again ? last_released_ : std::min<std::size_t>(setup_.choose_bytes(choices_), 512_KiB);
        Buffer buffer = pool_.try_acquire(bytes);
        if (buffer.empty()) {
            ++ledger_.failures;
            return;
        }
        ledger_.lend(bytes, buffer.capacity());
        if (setup_.has_bytes()) write_marks(buffer.data(), bytes, ++seed_);
        lent_.push_back({std::move(buffer), seed_});
    }
    void release() {
        if (lent_.empty()) return;
        std::swap(lent_[choices_.below(lent_.size())], lent_.back());
        give_back(std::move(lent_.back()));
        lent_.pop_back();
    }
    void grow() {
        if (lent_.empty()) return;
        auto& [buffer, seed] = lent_[choices_.below(lent_.size())];
        const std::size_t bytes = std::min<std::size_t>(setup_.choose_bytes(choices_), 512_KiB);
        const std::size_t before = buffer.size(), block = buffer.capacity();
        if (bytes <= before) return;
        try {
            pool_.grow(buffer, bytes);
        } catch (const OutOfMemory&) {
            ++ledger_.failures;
            return;
        }
        if (bytes <= block || setup_.grows_blocks()) {
            ledger_.grow(before, block, bytes, buffer.capacity());
        } else {
            ledger_.lend(bytes, buffer.capacity());
            ledger_.take_back(before, block);
        }
        if (!setup_.has_bytes()) return;
        if (!has_marks(buffer.data(), before, seed)) wrong_ += "a grown buffer lost its bytes\n";
        write_marks(buffer.data(), bytes, seed);
    }
    void send() {
        if (lent_.empty()) return;
        exchange_.put(std::move(lent_.back()));
        lent_.pop_back();
    }
    void receive() {
        if (auto parcel = exchange_.take()) give_back(std::move(*parcel));
    }
    void give_back(Exchange::Parcel parcel) {
        const std::size_t bytes = parcel.buffer.size();
        if (setup_.has_bytes() && !has_marks(parcel.buffer.data(), bytes, parcel.seed)) {
            wrong_ += "a buffer lost what was written\n";
        }
        ledger_.take_back(bytes, parcel.buffer.capacity());
        last_released_ = bytes;
    }

    Pool pool_;
    const Setup& setup_;
    Exchange& exchange_;
    SeededChoices choices_;
    std::size_t last_released_ = 0;
    std::uint64_t seed_;
    std::vector<Exchange::Parcel> lent_;
    Ledger ledger_;
    std::string wrong_;
};

/// Runs rounds of three threads on one pool and compares whenever they have joined.
std::string run_threads(std::uint64_t seed, std::uint64_t steps) {
    SeededChoices choices(seed);
    const Setup setup = choose_setup(choices);
    Pool pool{setup.memory, setup.options};
    Exchange exchange;
    Ledger ledger;
    for (std::uint64_t round = 0; round < 4; ++round) {
        std::vector<std::unique_ptr<Worker>> workers;
        std::vector<std::thread> threads;
        for (std::uint64_t i = 0; i < 3; ++i) {
            workers.push_back(
                std::make_unique<Worker>(pool, setup, exchange, seed * 1000 + round * 10 + i + 1));
        }
        for (auto& worker : workers) {
            threads.emplace_back([&worker, steps] { worker->work(steps / 12); });
        }
        for (std::thread& thread : threads) thread.join();
        std::string wrong;
        for (auto& worker : workers) {
            ledger.add(worker->ledger());
            wrong += worker->wrong();
            for (auto& parcel : worker->lent()) exchange.put(std::move(parcel));
        }
        const PoolStats now = pool.stats();
        wrong += contradictions_at_rest(now, limits_of(setup.options)) + ledger.complaints(now);
        if (!wrong.empty()) {
            return "round " + std::to_string(round) + " on " + setup.describe() + "\n" + wrong;
        }
    }
    return "";
}

}  // namespace

TEST(ModelTest, AgreesWithTheReferenceWheneverThreadsHaveJoined) {
    const std::uint64_t steps = amount("CISTERN_MODEL_OPS", 200'000), steps_each = 6'000;
    const std::uint64_t first_seed = seed_or(1);

    for (std::uint64_t done = 0, seed = first_seed; done < steps; done += steps_each, ++seed) {
        const std::string wrong = run_threads(seed, steps_each);
        ASSERT_EQ(wrong, "") << "repeat with CISTERN_SEED=" << seed;
    }
}

}  // namespace cistern::test
