// The C ABI of keyed pools.

#include <algorithm>
#include <string>

#include "cistern/cistern.h"
#include "cistern/keyed.hpp"
#include "interop/c_call.hpp"
#include "interop/handles.hpp"

namespace cistern::detail {
namespace {

using KeyedTable = Table<KeyedPool, HandleKind::keyed>;

[[maybe_unused]] const int registered_at_load = survive_fork<KeyedTable>();

KeyedTable::Visit visit_keyed(cistern_keyed keyed) { return KeyedTable::instance().visit(keyed); }

SameKey same_key_of(const cistern_keyed_options& options) {
    if (options.same_key == CISTERN_SAME_KEY_ERROR) return SameKey::error;
    if (options.same_key == CISTERN_SAME_KEY_OWN_BUFFER) return SameKey::own_buffer;
    throw InvalidArgument("there is no such same_key: " + std::to_string(options.same_key) +
                          ", from 0 to " + std::to_string(CISTERN_SAME_KEY_OWN_BUFFER));
}

KeyStats stats_of_all(const KeyedPool& keyed) {
    KeyStats sum;
    for (const auto& [key, counts] : keyed.stats()) {
        sum.hits += counts.hits;
        sum.misses += counts.misses;
        sum.grows += counts.grows;
    }
    return sum;
}

}  // namespace
}  // namespace cistern::detail

using namespace cistern;
using detail::call;
using detail::status_of;
using detail::visit_keyed;

cistern_status cistern_keyed_options_init(cistern_keyed_options* options, size_t size) {
    return status_of([&] {
        detail::write_struct(cistern_keyed_options{}, options, size, "cistern_keyed_options");
    });
}

cistern_keyed cistern_keyed_create(const cistern_keyed_options* options) {
    return call([&] {
        cistern_keyed_options read{};
        if (options != nullptr) read = detail::read_struct(options, read, "cistern_keyed_options");
        const KeyedOptions keyed{.same_key = detail::same_key_of(read)};
        const Pool pool = read.pool == 0 ? Pool(Memory::host(), presets::keyed())
                                         : Pool(*detail::visit_pool(read.pool));
        return detail::KeyedTable::instance().add(KeyedPool(pool, keyed));
    });
}

cistern_status cistern_keyed_destroy(cistern_keyed keyed) {
    return status_of([&] { detail::KeyedTable::instance().remove(keyed); });
}

void* cistern_keyed_get(cistern_keyed keyed, const char* key, size_t bytes) {
    return call([&] {
        const auto visit = visit_keyed(keyed);
        detail::check_pointer(key, "key");
        return visit->get_bytes(key, bytes);
    });
}

cistern_status cistern_keyed_stats(cistern_keyed keyed, const char* key, cistern_key_stats* stats,
                                   size_t size) {
    return status_of([&] {
        const auto visit = visit_keyed(keyed);
        const KeyStats counts = key == nullptr ? detail::stats_of_all(*visit) : visit->stats(key);
        const cistern_key_stats result{0, counts.hits, counts.misses, counts.grows};
        detail::write_struct(result, stats, size, "cistern_key_stats");
        stats->size = std::min(size, sizeof result);
    });
}

cistern_status cistern_keyed_memory_bytes(cistern_keyed keyed, const char* key, size_t* bytes) {
    return status_of([&] {
        const auto visit = visit_keyed(keyed);
        detail::check_pointer(bytes, "bytes");
        *bytes = key == nullptr ? visit->memory_bytes() : visit->memory_bytes(key);
    });
}

cistern_status cistern_keyed_clear(cistern_keyed keyed) {
    return status_of([&] { visit_keyed(keyed)->clear(); });
}
