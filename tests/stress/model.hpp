#pragma once
// One user doing anything a user may do, in any order, while a simple reference says what the pool
// must look like after each step. The choices come from a seed (model_test.cpp) or from a fuzzer
// (fuzz_pool.cpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cistern/cistern.hpp"
#include "stress/model_options.hpp"
#include "support/choices.hpp"
#include "support/patterns.hpp"
#include "support/reconcile.hpp"
#include "support/reference.hpp"
#include "support/twin.hpp"

namespace cistern::test {

class Model {
public:
    explicit Model(Choices& choices)
        : choices_(choices), setup_(choose_setup(choices)), pool_(setup_.memory, setup_.options) {
        if (setup_.is_predictable()) whole_blocks_.emplace(setup_.options);
    }
    ~Model() {
        // Ends the pool before its buffers half of the time.
        if (choices_.one_in(2)) pool_ = Pool{Memory::simulated()};
        lent_.clear();
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    /// Does one thing and looks at everything. Returns what is wrong, or an empty text.
    std::string step() {
        before_ = pool_.stats();
        wrong_.clear();
        act();
        look();
        return wrong_.empty()
                   ? ""
                   : "after '" + std::string(doing_) + "' on " + setup_.describe() + "\n" + wrong_;
    }
    [[nodiscard]] const Setup& setup() const { return setup_; }

private:
    struct Lent {
        Buffer buffer;
        std::size_t type;
        std::uint64_t seed;
    };
    static constexpr std::size_t most_lent = 48, type_of_vectors = 3;

    void act() {
        if (lent_.size() >= most_lent) return release_one();
        const std::uint64_t choice = choices_.below(100);
        if (choice < 36) return acquire();
        if (choice < 70) return release_one();
        if (choice < 76) return acquire_zeroed();
        if (choice < 78) return grow_a_vector();
        if (choice < 80) return grow_a_buffer();
        if (choice < 84) return adopt();
        if (choice < 88) return trim();
        if (choice < 91) return set_limits();
        if (choice < 94) return release_twice();
        if (choice < 96) return ask_for_nonsense();
        if (choice < 97) return explain();
        if (choice < 98) return release_many();
        if (lent_.empty() || !choices_.one_in(10)) return release_one();
        release_on_another_thread();
    }

    // --- What a user does ---------------------------------------------------------------------------

    void acquire() {
        doing_ = "acquire";
        const bool again = last_released_ != 0 && choices_.one_in(3);  // as a loop does
        const std::size_t bytes = again ? last_released_ : setup_.choose_bytes(choices_);
        const std::size_t type = choices_.below(3);
        const bool may_fail = choices_.one_in(2);
        keep(take(bytes, type, may_fail), bytes, type);
    }

    void acquire_zeroed() {
        doing_ = "acquire zeroes";
        const std::size_t bytes = setup_.choose_bytes(choices_);
        try {
            Buffer buffer = pool_.acquire_zeroed(bytes);
            expect(!setup_.has_bytes() || all_zero(buffer.data(), bytes), "zeroed bytes are zero");
            keep(std::move(buffer), bytes, 0);
        } catch (const OutOfMemory&) {
            refused();
        }
    }

    /// Raw bytes, or the buffer of an array: types matter where they are kept apart.
    Buffer take(std::size_t bytes, std::size_t type, bool may_fail) {
        if (may_fail && type == 0) {
            Buffer buffer = pool_.try_acquire(bytes);
            if (buffer.empty()) refused();
            return buffer;
        }
        try {
            if (type == 1) return pool_.array<std::uint8_t>(bytes).take_buffer();
            if (type == 2) return pool_.array<std::int8_t>(bytes).take_buffer();
            return pool_.acquire(bytes);
        } catch (const OutOfMemory&) {
            refused();
            return {};
        }
    }

    void keep(Buffer buffer, std::size_t bytes, std::size_t type) {
        if (buffer.empty()) return;
        expect(buffer.size() == bytes, "the size is the one asked for");
        expect(buffer.capacity() >= bytes, "the block is large enough");
        expect(reinterpret_cast<std::uintptr_t>(buffer.data()) % setup_.options.alignment == 0,
               "the bytes are aligned");
        ledger_.lend(bytes, buffer.capacity());
        check_served(bytes, buffer.capacity(), type);
        const std::uint64_t seed = ++seed_;
        if (setup_.has_bytes()) write_marks(buffer.data(), bytes, seed);
        lent_.push_back({std::move(buffer), type, seed});
    }

    /// Compares with what the reference would have served from.
    void check_served(std::size_t bytes, std::size_t capacity, std::size_t type) {
        const PoolStats now = pool_.stats();
        const bool hit = now.hits == before_.hits + 1;
        if (whole_blocks_) {
            const std::optional<std::size_t> block = whole_blocks_->take(bytes, type);
            expect(hit == block.has_value(),
                   block ? "this should be a hit" : "this should be a miss");
            expect(capacity == block.value_or(whole_blocks_->bytes_of_new_block(bytes)),
                   "the block is the one that the fit names");
        }
        if (time_matters() || setup_.memory_is_small || now.evictions != before_.evictions) return;
        expect(hit == (now.held_bytes.now == before_.held_bytes.now), "a hit needs no new bytes");
    }

    void release_one() {
        doing_ = "release";
        if (lent_.empty()) return;
        Lent one = remove(choices_.below(lent_.size()));
        last_released_ = one.buffer.size();
        give_back(one);
        if (choices_.one_in(2)) {
            pool_.release(std::move(one.buffer));
        } else {
            one.buffer.release();
        }
        expect(one.buffer.empty(), "a released buffer is empty");
    }

    void release_many() {
        doing_ = "release many";
        while (!lent_.empty()) {
            Lent one = remove(lent_.size() - 1);
            give_back(one);
        }
    }

    void release_on_another_thread() {
        doing_ = "release on another thread";
        Lent one = remove(choices_.below(lent_.size()));
        give_back(one);
        std::thread([&one] { one.buffer.release(); }).join();
    }

    void release_twice() {
        doing_ = "release twice";
        if (lent_.empty()) return;
        Lent one = remove(choices_.below(lent_.size()));
        Twin twin(one.buffer);
        give_back(one);
        one.buffer.release();
        expect_refused([&] { pool_.release(std::move(twin.get())); });
        twin.destroy();
    }

    void grow_a_vector() {
        doing_ = "grow a vector";
        if (!setup_.has_bytes()) return;
        const std::size_t count =
            choices_.below(std::min<std::size_t>(setup_.largest_request, 9000));
        std::optional<Vector<char>> vector(std::in_place, pool_);
        std::size_t asked = 0, block = 0;  // of the buffer it has
        try {
            for (std::size_t i = 0; i < count; ++i) {
                const bool grows = vector->capacity() == i;
                if (grows) before_ = pool_.stats();
                vector->push_back(static_cast<char>(i));
                if (grows) follow_growth(asked, block, vector->capacity());
            }
        } catch (const OutOfMemory&) {
            refused();
        } catch (const InvalidArgument&) {
            expect(std::holds_alternative<FixedBlock>(setup_.options.fit), "any size can be had");
        }
        for (std::size_t i = 0; i < vector->size(); ++i) {
            expect((*vector)[i] == static_cast<char>(i), "a vector keeps its elements");
        }
        vector.reset();
        if (block != 0) taken_back(asked, block, type_of_vectors);
    }

    void grow_a_buffer() {
        doing_ = "grow a buffer";
        if (lent_.empty()) return;
        Lent& one = lent_[choices_.below(lent_.size())];
        const std::size_t asked = one.buffer.size(), block = one.buffer.capacity();
        const std::size_t bytes = setup_.choose_bytes(choices_);
        try {
            pool_.grow(one.buffer, bytes);
        } catch (const OutOfMemory&) {
            refused();
        }
        if (setup_.has_bytes()) {
            expect(has_marks(one.buffer.data(), asked, one.seed), "a grown buffer keeps its bytes");
        }
        if (one.buffer.size() == asked) return;
        expect(one.buffer.size() == bytes && bytes > asked, "the size is the one asked for");
        expect(one.buffer.capacity() >= bytes, "the block is large enough");
        if (setup_.has_bytes()) write_marks(one.buffer.data(), bytes, one.seed);
        if (pool_.stats().acquires == before_.acquires) {
            ledger_.grow(asked, block, bytes, one.buffer.capacity());
            return;
        }
        ledger_.lend(bytes, one.buffer.capacity());
        if (whole_blocks_) check_served(bytes, one.buffer.capacity(), one.type);
        taken_back(asked, block, one.type);
    }

    /// A vector asked for more bytes, moved there, and gave the old ones back.
    void follow_growth(std::size_t& asked, std::size_t& block, std::size_t now_asked) {
        const std::size_t others = ledger_.bytes - block;
        const std::size_t now_block = pool_.stats().lent_bytes.now - others;
        expect(now_block >= now_asked, "the block is large enough");
        ledger_.lend(now_asked, now_block);
        check_served(now_asked, now_block, type_of_vectors);
        if (block != 0) taken_back(asked, block, type_of_vectors);
        asked = now_asked;
        block = now_block;
    }

    void adopt() {
        doing_ = "adopt";
        if (!setup_.has_bytes() || setup_.memory_is_small) return;
        const std::size_t grain = setup_.options.alignment;
        const auto* const fixed = std::get_if<FixedBlock>(&setup_.options.fit);
        const std::size_t bytes =
            fixed != nullptr ? fixed->bytes : grain * (1 + choices_.below(64));
        if (bytes % grain != 0) return;
        void* const data = ::operator new (bytes, std::align_val_t{grain});
        pool_.adopt(data, bytes,
                    [grain](void* d) { ::operator delete (d, std::align_val_t{grain}); });
        if (whole_blocks_) whole_blocks_->give(bytes, 0);
    }

    void trim() {
        doing_ = "trim";
        const std::size_t keep = choices_.one_in(3) ? 0 : choices_.size_below(std::size_t{4} << 20);
        const std::size_t given_back = pool_.trim(keep);
        const PoolStats now = pool_.stats();
        expect(now.idle_bytes.now <= keep, "trim leaves at most what it may");
        expect(time_matters() || given_back == before_.held_bytes.now - now.held_bytes.now,
               "trim returns what it gave back");
        if (whole_blocks_)
            expect(whole_blocks_->trim(keep) == given_back, "trim gives back this much");
    }

    void set_limits() {
        doing_ = "set limits";
        const Limits limits = choose_limits(choices_, setup_.options.fit, setup_.is_predictable());
        if (limits.max_bytes < ledger_.bytes) {
            expect_refused([&] { pool_.set_limits(limits); });
            return;
        }
        pool_.set_limits(limits);
        setup_.set_limits(limits);
        if (whole_blocks_) whole_blocks_->set_limits(limits);
    }

    void ask_for_nonsense() {
        doing_ = "ask for nonsense";
        expect_refused([&] { pool_.release(Buffer{}); });
        expect_refused([&] { (void)pool_.array<double>(-1); });
        expect_refused([&] { pool_.set_limits({.max_bytes = 64, .max_idle_bytes = 128}); });
        expect_refused([&] { pool_.adopt(nullptr, 64, [](void*) {}); });
        expect(pool_.acquire(0).empty(), "no bytes are an empty buffer");
        Pool other{Memory::simulated()};
        Buffer foreign = other.acquire(64);
        expect_refused([&] { pool_.release(std::move(foreign)); });
    }

    void explain() {
        doing_ = "explain";
        const Explanation e = pool_.explain();
        std::uint64_t lent = 0, idle = 0, aged = 0;
        for (const ClassReport& row : e.classes) {
            lent += row.lent_bytes;
            idle += row.idle_bytes;
        }
        for (const AgeReport& row : e.ages) aged += row.idle_bytes;
        expect(lent == ledger_.bytes, "the explanation adds up what is lent");
        expect(time_matters() || idle == pool_.stats().idle_bytes.now,
               "the explanation adds up what is idle");
        expect(aged == idle, "the ages add up what is idle");
    }

    // --- What must be true then ---------------------------------------------------------------------

    void look() {
        const PoolStats now = pool_.stats();
        wrong_ += contradictions_at_rest(now, limits_of(setup_.options));
        wrong_ += ledger_.complaints(now);
        wrong_ += ledger_.complaints_about_peaks(now);
        if (whole_blocks_) wrong_ += whole_blocks_->complaints(now);
        if (lent_.empty()) return;
        const Lent& one = lent_[choices_.below(lent_.size())];
        expect(!setup_.has_bytes() || has_marks(one.buffer.data(), one.buffer.size(), one.seed),
               "a lent buffer keeps what was written");
    }

    void give_back(Lent& one) {
        const std::size_t bytes = one.buffer.size(), capacity = one.buffer.capacity();
        expect(!setup_.has_bytes() || has_marks(one.buffer.data(), bytes, one.seed),
               "a buffer has what was written when it is released");
        taken_back(bytes, capacity, one.type);
    }

    void taken_back(std::size_t bytes, std::size_t capacity, std::size_t type) {
        ledger_.take_back(bytes, capacity);
        if (whole_blocks_) whole_blocks_->give(capacity, type);
    }

    void refused() {
        ++ledger_.failures;
        expect(setup_.can_refuse(), "a pool without limits does not run out");
    }

    /// Whether bytes may go while nobody does anything.
    [[nodiscard]] bool time_matters() const { return setup_.options.max_idle_age != forever; }

    template <class Action>
    void expect_refused(Action&& action) {
        const PoolStats before = pool_.stats();
        bool was_refused = false;
        try {
            action();
        } catch (const InvalidArgument&) {
            was_refused = true;
        }
        expect(was_refused, "nonsense is refused");
        PoolStats now = pool_.stats();
        now.idle_buffers = before.idle_buffers;  // neighbours may have been joined
        expect(time_matters() || now == before, "what is refused changes nothing");
    }

    void expect(bool holds, const char* sentence) {
        if (!holds) wrong_ += std::string("not so: ") + sentence + "\n";
    }

    Lent remove(std::size_t index) {
        std::swap(lent_[index], lent_.back());
        Lent one = std::move(lent_.back());
        lent_.pop_back();
        return one;
    }

    Choices& choices_;
    Setup setup_;
    Pool pool_;
    std::vector<Lent> lent_;
    Ledger ledger_;
    std::optional<WholeBlocks> whole_blocks_;
    std::size_t last_released_ = 0;
    std::uint64_t seed_ = 0;
    PoolStats before_;
    const char* doing_ = "";
    std::string wrong_;
};

}  // namespace cistern::test
