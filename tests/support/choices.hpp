#pragma once
// Where a random test takes its decisions from: a seed, or the bytes of a fuzzer.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "support/patterns.hpp"

namespace cistern::test {

class Choices {
public:
    virtual ~Choices() = default;
    /// Returns a number below `limit`, which is not 0.
    std::uint64_t below(std::uint64_t limit) { return next() % limit; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    /// Returns a size with every order of magnitude equally likely, at least 1 and below `limit`.
    std::size_t size_below(std::size_t limit) {
        const std::size_t magnitude = std::size_t{2} << below(static_cast<std::uint64_t>(
                                          63 - __builtin_clzll(limit)));
        return 1 + below(magnitude < limit ? magnitude : limit - 1);
    }

protected:
    virtual std::uint64_t next() = 0;
};

class SeededChoices final : public Choices {
public:
    explicit SeededChoices(std::uint64_t seed) : state_(seed) {}

private:
    std::uint64_t next() override { return scrambled(++state_); }
    std::uint64_t state_;
};

/// Two bytes of the input per decision, more where a size needs them; zeros when it has run out.
class ByteChoices final : public Choices {
public:
    ByteChoices(const std::uint8_t* data, std::size_t bytes) : data_(data), left_(bytes) {}
    [[nodiscard]] bool done() const { return left_ == 0; }

private:
    std::uint64_t next() override {
        std::uint16_t value = 0;
        const std::size_t taken = left_ < sizeof(value) ? left_ : sizeof(value);
        std::memcpy(&value, data_, taken);
        data_ += taken;
        left_ -= taken;
        return scrambled(value) << 16 | value;
    }
    const std::uint8_t* data_;
    std::size_t left_;
};

}  // namespace cistern::test
