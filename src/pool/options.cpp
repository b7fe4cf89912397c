#include "pool/options.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/size_class.hpp"

namespace cistern {

namespace {

constexpr std::size_t largest_alignment = 2 << 20;

std::string decimal(double value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    return text;
}

void check_fit(const PoolOptions& options) {
    if (const auto* const best = std::get_if<BestFit>(&options.fit)) {
        if (!(best->max_waste >= 0 && best->max_waste <= 1)) {
            throw InvalidArgument("max_waste is a share from 0 to 1: " + decimal(best->max_waste));
        }
    }
    if (const auto* const fixed = std::get_if<FixedBlock>(&options.fit)) {
        if (fixed->bytes > static_cast<std::size_t>(PTRDIFF_MAX)) {
            throw InvalidArgument("a fixed block has more bytes than can be addressed: " +
                                  std::to_string(fixed->bytes) + " B, limit " +
                                  std::to_string(PTRDIFF_MAX) + " B");
        }
        if (fixed->bytes > options.max_bytes) {
            throw InvalidArgument(
                "a fixed block is larger than max_bytes: " + exact_text_of_bytes(fixed->bytes) +
                ", max_bytes " + exact_text_of_bytes(options.max_bytes));
        }
        if (fixed->bytes > options.max_buffer_bytes) {
            throw InvalidArgument("a fixed block is larger than max_buffer_bytes: " +
                                  exact_text_of_bytes(fixed->bytes) + ", max_buffer_bytes " +
                                  exact_text_of_bytes(options.max_buffer_bytes));
        }
    }
}

}  // namespace

void check_options(const PoolOptions& options) {
    if (!std::has_single_bit(options.alignment)) {
        throw InvalidArgument("alignment is not a power of two: " +
                              std::to_string(options.alignment));
    }
    if (options.alignment > largest_alignment) {
        throw InvalidArgument("alignment is too large: " + std::to_string(options.alignment) +
                              ", limit " + std::to_string(largest_alignment));
    }
    const std::size_t unset = default_max_idle_bytes();
    if (options.max_idle_bytes > options.max_bytes && options.max_idle_bytes != unset &&
        options.max_idle_bytes != no_limit) {
        throw InvalidArgument("max_idle_bytes is larger than max_bytes: " +
                              exact_text_of_bytes(options.max_idle_bytes) + ", max_bytes " +
                              exact_text_of_bytes(options.max_bytes));
    }
    if (options.max_idle_age.count() < 0) {
        throw InvalidArgument("max_idle_age cannot be negative: " +
                              std::to_string(options.max_idle_age.count()) + " ms");
    }
    if (options.evict != Evict::oldest && options.evict != Evict::smallest &&
        options.evict != Evict::largest) {
        throw InvalidArgument("there is no such order of eviction: " +
                              std::to_string(static_cast<int>(options.evict)));
    }
    check_fit(options);
}

void check_lent_under(std::uint64_t lent, const Limits& limits) {
    if (lent <= limits.max_bytes) return;
    throw InvalidArgument("more is lent than max_bytes would allow: " + exact_text_of_bytes(lent) +
                          ", max_bytes " + exact_text_of_bytes(limits.max_bytes));
}

void check_adopted(const PoolOptions& options, const void* data, std::size_t bytes) {
    if (data == nullptr) throw InvalidArgument("adopted bytes have no address: null");
    const auto misfit = [&options](std::size_t number) {
        return (number & (options.alignment - 1)) != 0;
    };
    const std::string alignment = ", alignment " + std::to_string(options.alignment);
    if (misfit(reinterpret_cast<std::uintptr_t>(data))) {
        throw InvalidArgument("adopted bytes are not aligned as the pool's are" + alignment);
    }
    if (bytes == 0 || misfit(bytes)) {
        throw InvalidArgument("adopted bytes are no multiple of the pool's alignment: " +
                              std::to_string(bytes) + " B" + alignment);
    }
    const auto* const fixed = std::get_if<FixedBlock>(&options.fit);
    if (fixed != nullptr && bytes != fixed->bytes) {
        throw InvalidArgument(
            "adopted block has not the fixed size: " + exact_text_of_bytes(bytes) + ", block " +
            exact_text_of_bytes(fixed->bytes));
    }
}

void set_limits_of(PoolOptions& options, const Limits& limits) {
    options.max_bytes = limits.max_bytes;
    options.max_idle_bytes = limits.max_idle_bytes;
    options.max_idle_buffers = limits.max_idle_buffers;
    options.max_buffer_bytes = limits.max_buffer_bytes;
    options.max_idle_age = limits.max_idle_age;
}

std::string text_of_fit(const Fit& fit) {
    if (const auto* const best = std::get_if<BestFit>(&fit)) {
        return "BestFit, max_waste " + decimal(best->max_waste);
    }
    if (const auto* const fixed = std::get_if<FixedBlock>(&fit)) {
        return "FixedBlock, " + text_of_bytes(fixed->bytes);
    }
    return std::holds_alternative<ExactFit>(fit) ? "ExactFit" : "Elastic";
}

}  // namespace cistern
