#pragma once
// Bytes straight from the system on huge pages: what the floor and the references are made of.

#include <cstddef>

namespace bench {

/// A private mapping, aligned to 2 MiB and advised to use huge pages. Throws std::bad_alloc.
class HugeMapping {
public:
    explicit HugeMapping(std::size_t bytes);
    ~HugeMapping();
    HugeMapping(HugeMapping&& other) noexcept;
    HugeMapping& operator=(HugeMapping&&) = delete;

    [[nodiscard]] void* data() const noexcept { return data_; }

private:
    void* base_;
    std::size_t mapped_bytes_;
    void* data_;
};

}  // namespace bench
