// The C ABI: each function finds what its handle names and calls the C++ verb of the same name.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "cistern/cistern.h"
#include "cistern/pool.hpp"
#include "cistern/presets.hpp"
#include "cistern/version.hpp"
#include "interop/c_call.hpp"
#include "interop/handles.hpp"
#include "interop/loans.hpp"

namespace cistern {
namespace {

using detail::BufferTable;
using detail::call;
using detail::Interop;
using detail::PoolTable;
using detail::status_of;
using detail::visit_pool;

static_assert(no_limit == CISTERN_NO_LIMIT && forever.count() == CISTERN_FOREVER);

// --- Options ----------------------------------------------------------------------------------------

bool flag(std::int32_t value, const char* name) {
    if (value == 0 || value == 1) return value == 1;
    throw InvalidArgument(std::string(name) + " is neither 0 nor 1: " + std::to_string(value));
}

Fit fit_of(const cistern_options& options) {
    switch (options.fit) {
        case CISTERN_ELASTIC:
            return Elastic{};
        case CISTERN_EXACT_FIT:
            return ExactFit{};
        case CISTERN_BEST_FIT:
            return BestFit{options.max_waste};
        case CISTERN_FIXED_BLOCK:
            return FixedBlock{options.block_bytes};
        default:
            throw InvalidArgument("there is no such fit: " + std::to_string(options.fit) +
                                  ", from 0 to " + std::to_string(CISTERN_FIXED_BLOCK));
    }
}

/// Copies the limits, which have the same names everywhere.
template <class From, class To>
void copy_limits(const From& from, To& to) {
    to.max_bytes = from.max_bytes;
    to.max_idle_bytes = from.max_idle_bytes;
    to.max_idle_buffers = from.max_idle_buffers;
    to.max_buffer_bytes = from.max_buffer_bytes;
}

PoolOptions from_c(const cistern_options& options) {
    PoolOptions result;
    if (options.name != nullptr) result.name = options.name;
    result.fit = fit_of(options);
    result.alignment = options.alignment;
    copy_limits(options, result);
    result.max_idle_age = std::chrono::milliseconds(options.max_idle_age_ms);
    result.evict = static_cast<Evict>(options.evict);  // the pool refuses what does not exist
    result.separate_types = flag(options.separate_types, "separate_types");
    result.wipe_on_release = flag(options.wipe_on_release, "wipe_on_release");
    return result;
}

/// The name stays the caller's to give.
cistern_options to_c(const PoolOptions& options) {
    cistern_options result{};
    result.fit = static_cast<std::int32_t>(options.fit.index());
    const auto* const best = std::get_if<BestFit>(&options.fit);
    const auto* const fixed = std::get_if<FixedBlock>(&options.fit);
    result.max_waste = best != nullptr ? best->max_waste : BestFit{}.max_waste;
    result.block_bytes = fixed != nullptr ? fixed->bytes : 0;
    result.evict = static_cast<std::int32_t>(options.evict);
    result.alignment = options.alignment;
    copy_limits(options, result);
    result.max_idle_age_ms = options.max_idle_age.count();
    result.separate_types = options.separate_types ? 1 : 0;
    result.wipe_on_release = options.wipe_on_release ? 1 : 0;
    return result;
}

cistern_status write_options(const PoolOptions& from, cistern_options* to, std::size_t size) {
    return status_of([&] { detail::write_struct(to_c(from), to, size, "cistern_options"); });
}

static_assert(std::is_same_v<std::variant_alternative_t<CISTERN_ELASTIC, Fit>, Elastic> &&
              std::is_same_v<std::variant_alternative_t<CISTERN_EXACT_FIT, Fit>, ExactFit> &&
              std::is_same_v<std::variant_alternative_t<CISTERN_BEST_FIT, Fit>, BestFit> &&
              std::is_same_v<std::variant_alternative_t<CISTERN_FIXED_BLOCK, Fit>, FixedBlock>);

// --- Buffers and texts ------------------------------------------------------------------------------

/// Lends by `take`, called with the pool.
template <class Take>
cistern_buffer lend_by(cistern_pool pool, Take&& take) noexcept {
    return call([&] {
        const auto visit = visit_pool(pool);
        return BufferTable::instance().add(take(*visit));
    });
}

/// Writes what `tell` returns, called with the pool, into the caller's room. Returns the bytes it takes.
template <class Tell>
std::size_t text_by(cistern_pool pool, char* to, std::size_t room, Tell&& tell) {
    std::size_t bytes = 0;
    status_of([&] {
        const std::string text = tell(*visit_pool(pool));
        if (to == nullptr && room != 0) throw InvalidArgument("text is null");
        bytes = text.size() + 1;
        if (to == nullptr) return;
        if (room < bytes) {
            throw detail::NoRoom("the text does not fit: " + std::to_string(bytes) + " B, room " +
                                 std::to_string(room) + " B");
        }
        std::memcpy(to, text.c_str(), bytes);
    });
    return bytes;
}

cistern_gauge gauge(const Gauge& from) { return {from.now, from.peak}; }

}  // namespace
}  // namespace cistern

using namespace cistern;

const char* cistern_version() { return version(); }

cistern_status cistern_options_init(cistern_options* options, size_t size) {
    return write_options({}, options, size);
}

cistern_status cistern_options_fixed_blocks(cistern_options* options, size_t size,
                                            size_t block_bytes) {
    return write_options(presets::fixed_blocks(block_bytes), options, size);
}

cistern_status cistern_options_typed_best_fit(cistern_options* options, size_t size) {
    return write_options(presets::typed_best_fit(), options, size);
}

PoolOptions detail::read_options(const cistern_options* options) {
    if (options == nullptr) return {};
    return from_c(detail::read_struct(options, to_c({}), "cistern_options"));
}

cistern_pool cistern_pool_create(const cistern_options* options) {
    return call([&] {
        return PoolTable::instance().add(Pool(Memory::host(), detail::read_options(options)));
    });
}

cistern_pool cistern_default_pool() {
    return call([] {
        static const std::uint64_t handle = PoolTable::instance().add(default_pool());
        return handle;
    });
}

cistern_status cistern_pool_destroy(cistern_pool pool) {
    return status_of([&] {
        if (pool != 0 && detail::is_default(*visit_pool(pool))) {
            throw InvalidArgument("the default pool cannot be destroyed");
        }
        PoolTable::instance().remove(pool);
    });
}

cistern_status cistern_trim(cistern_pool pool, size_t keep_idle_bytes, size_t* given_back) {
    return status_of([&] {
        const std::size_t bytes = visit_pool(pool)->trim(keep_idle_bytes);
        if (given_back != nullptr) *given_back = bytes;
    });
}

cistern_status cistern_pool_limits(cistern_pool pool, cistern_limits* limits, size_t size) {
    return status_of([&] {
        const PoolOptions options = visit_pool(pool)->options();
        cistern_limits result{};
        copy_limits(options, result);
        result.max_idle_age_ms = options.max_idle_age.count();
        detail::write_struct(result, limits, size, "cistern_limits");
    });
}

cistern_status cistern_set_limits(cistern_pool pool, const cistern_limits* limits) {
    return status_of([&] {
        const auto visit = visit_pool(pool);
        detail::check_pointer(limits, "cistern_limits");
        const cistern_limits read = detail::read_struct(limits, cistern_limits{}, "cistern_limits");
        Limits result;
        copy_limits(read, result);
        result.max_idle_age = std::chrono::milliseconds(read.max_idle_age_ms);
        visit->set_limits(result);
    });
}

cistern_status cistern_adopt(cistern_pool pool, void* data, size_t bytes,
                             void (*deleter)(void* data, void* context), void* context) {
    return status_of([&] {
        const auto visit = visit_pool(pool);
        if (deleter == nullptr) throw InvalidArgument("adopted bytes need a deleter: null");
        visit->adopt(data, bytes, [deleter, context](void* adopted) { deleter(adopted, context); });
    });
}

cistern_status cistern_on_out_of_memory(cistern_pool pool,
                                        void (*callback)(size_t bytes, void* context),
                                        void* context) {
    return status_of([&] {
        const auto visit = visit_pool(pool);
        if (callback == nullptr) {
            throw InvalidArgument("the callback for out of memory is empty: null");
        }
        visit->on_out_of_memory([callback, context](size_t bytes) { callback(bytes, context); });
    });
}

cistern_buffer cistern_acquire(cistern_pool pool, size_t bytes) {
    return lend_by(pool, [&](Pool& from) { return from.acquire(bytes); });
}

cistern_buffer cistern_acquire_zeroed(cistern_pool pool, size_t bytes) {
    return lend_by(pool, [&](Pool& from) { return from.acquire_zeroed(bytes); });
}

cistern_buffer cistern_acquire_typed(cistern_pool pool, size_t bytes, uint64_t type) {
    return lend_by(pool, [&](Pool& from) { return Interop::acquire(from, bytes, type); });
}

cistern_buffer cistern_try_acquire(cistern_pool pool, size_t bytes) {
    bool ran_out = false;
    const cistern_buffer handle = call([&]() -> cistern_buffer {
        const auto visit = visit_pool(pool);
        Buffer buffer = visit->try_acquire(bytes);
        ran_out = buffer.empty() && bytes != 0;
        return ran_out ? 0 : BufferTable::instance().add(std::move(buffer));
    });
    if (ran_out) {
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), "there is no room for %zu B", bytes);
        detail::set_error(CISTERN_OUT_OF_MEMORY, text.data());
    }
    return handle;
}

cistern_status cistern_release(cistern_buffer buffer) {
    return status_of([&] { BufferTable::instance().remove(buffer).release(); });
}

void* cistern_buffer_data(cistern_buffer buffer) {
    return call([&] {
        return BufferTable::instance().read(buffer, [](const Buffer& lent) { return lent.data(); });
    });
}

size_t cistern_buffer_size(cistern_buffer buffer) {
    return call([&] {
        return BufferTable::instance().read(buffer, [](const Buffer& lent) { return lent.size(); });
    });
}

size_t cistern_buffer_capacity(cistern_buffer buffer) {
    return call([&] {
        return BufferTable::instance().read(buffer,
                                            [](const Buffer& lent) { return lent.capacity(); });
    });
}

cistern_status cistern_pool_stats(cistern_pool pool, cistern_stats* stats, size_t size) {
    return status_of([&] {
        const PoolStats from = visit_pool(pool)->stats();
        const Evictions& evictions = from.evictions_by_limit;
        cistern_stats result{};
        result.acquires = from.acquires;
        result.hits = from.hits;
        result.misses = from.misses;
        result.grows = from.grows;
        result.releases = from.releases;
        result.evictions = from.evictions;
        result.failures = from.failures;
        result.evicted_for_max_bytes = evictions.max_bytes;
        result.evicted_for_max_idle_bytes = evictions.max_idle_bytes;
        result.evicted_for_max_idle_buffers = evictions.max_idle_buffers;
        result.evicted_for_max_buffer_bytes = evictions.max_buffer_bytes;
        result.evicted_for_max_idle_age = evictions.max_idle_age;
        result.moves = from.moves;
        result.moved_bytes = from.moved_bytes;
        result.missed_bytes = from.missed_bytes;
        result.lent_buffers = gauge(from.lent_buffers);
        result.lent_bytes = gauge(from.lent_bytes);
        result.idle_buffers = gauge(from.idle_buffers);
        result.idle_bytes = gauge(from.idle_bytes);
        result.held_bytes = gauge(from.held_bytes);
        result.waste_bytes = gauge(from.waste_bytes);
        detail::write_struct(result, stats, size, "cistern_stats");
        stats->size = std::min(size, sizeof result);
    });
}

size_t cistern_pool_stats_json(cistern_pool pool, char* text, size_t room) {
    return text_by(pool, text, room, [](const Pool& from) { return from.stats().json(); });
}

size_t cistern_pool_explain(cistern_pool pool, char* text, size_t room) {
    return text_by(pool, text, room, [](const Pool& from) {
        std::ostringstream out;
        out << from.explain();
        return out.str();
    });
}

size_t cistern_pool_explain_json(cistern_pool pool, char* text, size_t room) {
    return text_by(pool, text, room, [](const Pool& from) { return from.explain().json(); });
}
