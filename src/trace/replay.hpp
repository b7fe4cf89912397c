#pragma once
// Replays a trace through the real pool code on a memory that owns no bytes: what would this program
// have held, with these options?
//
//     const ReplayResult result = replay(read_trace("steps.csv.gz"), {.pool = {.fit = ExactFit{}}});
//
// Each pool named in the trace becomes a pool of its own, all with the same options. Streams are
// ignored: buffers are used in the order of the host, or of the default stream.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "cistern/pool.hpp"
#include "trace/reader.hpp"

namespace cistern::trace {

struct ReplayOptions {
    PoolOptions pool = {};                        // for each pool; the name is taken from the trace
    std::optional<Memory> memory = std::nullopt;  // a real one; its pages are not touched
    double max_over_live = 0;  // max_bytes as a multiple of the trace's peak; 0: as given
    std::size_t repeat = 1;    // how often to play the trace, in the same pools
    std::function<void(double)> progress = {};  // called now and then with the fraction done
};

/// Sums over the pools. A peak is that of the sum: what all pools had at one moment.
struct ReplayResult {
    std::uint64_t events = 0, pools = 0;
    std::uint64_t acquires = 0, hits = 0, misses = 0, evictions = 0, failures = 0;
    std::uint64_t missed_bytes = 0;     // asked of the memory
    std::uint64_t peak_live_bytes = 0;  // requested by the buffers alive
    std::uint64_t peak_held_bytes = 0;
    std::uint64_t waste_bytes = 0;  // the peak
    std::uint64_t moves = 0, moved_bytes = 0;
    double seconds = 0;

    [[nodiscard]] double hit_rate() const noexcept;
    /// Returns peak held over peak live bytes; 0 if nothing was live.
    [[nodiscard]] double held_over_live() const noexcept;
};

/// Plays the trace. What outlives it is released before it is played again, and stays live after the
/// last time. An acquire that a limit refuses is counted as a failure and its release skipped. Throws InvalidArgument, naming
/// file and line, for a request that the fit cannot serve, and for options that make no sense.
ReplayResult replay(const Trace& trace, const ReplayOptions& options = {});

}  // namespace cistern::trace
