#pragma once
// The global operator new with a switch: fails the n-th allocation of the calling thread. Its
// definition is in stress/failing_new.cpp, so only the stress tests have it.

#include <cstdint>

namespace cistern::test {

/// While it lives, the n-th `new` of this thread from now on fails, once.
class FailingNew {
public:
    explicit FailingNew(std::uint64_t n) noexcept;
    FailingNew(const FailingNew&) = delete;
    FailingNew& operator=(const FailingNew&) = delete;
    ~FailingNew();

    /// Whether an allocation was refused.
    [[nodiscard]] static bool has_failed() noexcept;
};

}  // namespace cistern::test
