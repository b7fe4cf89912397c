#pragma once
// Where a random test takes its decisions from: a seed, or the bytes of a fuzzer.

#include <cstddef>
#include <cstdint>

#include "support/patterns.hpp"

namespace cistern::test {

class Choices {
public:
    virtual ~Choices() = default;
    /// Returns a number below `limit`, which is not 0.
    virtual std::uint64_t below(std::uint64_t limit) = 0;
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    /// Returns a size with every order of magnitude equally likely, at least 1 and below `limit`.
    std::size_t size_below(std::size_t limit) {
        const std::size_t magnitude =
            std::size_t{2} << below(static_cast<std::uint64_t>(63 - __builtin_clzll(limit)));
        return 1 + below(magnitude < limit ? magnitude : limit - 1);
    }
};

class SeededChoices final : public Choices {
public:
    explicit SeededChoices(std::uint64_t seed) : state_(scrambled(seed)) {}
    std::uint64_t below(std::uint64_t limit) override { return scrambled(++state_) % limit; }

private:
    std::uint64_t state_;
};

/// As many bytes of the input as a decision needs; zeros when it has run out.
class ByteChoices final : public Choices {
public:
    ByteChoices(const std::uint8_t* data, std::size_t bytes) : data_(data), left_(bytes) {}
    [[nodiscard]] bool done() const { return left_ == 0; }

    std::uint64_t below(std::uint64_t limit) override {
        std::uint64_t value = 0;
        for (std::uint64_t span = 1; span < limit && left_ != 0; span <<= 8) {
            value = value << 8 | *data_++;
            --left_;
        }
        return value % limit;
    }

private:
    const std::uint8_t* data_;
    std::size_t left_;
};

}  // namespace cistern::test
