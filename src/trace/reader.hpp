#pragma once
// A trace is what a program asked of its pools: CSV, gzip or plain, one row per event, in time order.
//
//     event,pool,id,bytes,stream
//     a,fluid,0,636800,0              acquires
//     r,fluid,0,636800,0              releases: pool and bytes repeat those of the acquire
//
// An id names one buffer and is used once. Ids never released are results that outlive the trace.
// A header alone is a trace of a program that acquired nothing.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cistern::trace {

enum class EventKind : std::uint8_t { acquire, release };

struct Event {
    EventKind kind = EventKind::acquire;
    std::uint32_t pool = 0;    // index of the pool's name
    std::uint64_t buffer = 0;  // counts acquires from 0; a release repeats that of its acquire
    std::size_t bytes = 0;
    std::uint64_t stream = 0;
    friend bool operator==(const Event&, const Event&) = default;
};

/// Reads one row at a time and checks it against all before. Its memory grows with the number of
/// ids, not of bytes read. One thread.
///
/// Every error is an InvalidArgument, "FILE:LINE: what was expected: 'what was found'".
class Reader {
public:
    /// Opens the file and reads its header.
    explicit Reader(const std::string& path);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    /// Returns false at the end of the file, else the next event.
    bool next(Event& event);

    /// Returns the names of the pools met so far, in the order of their first event.
    [[nodiscard]] const std::vector<std::string>& pools() const noexcept { return pools_; }
    /// Returns how much of the file (as stored) was read: from 0 to 1; 0 if its size is unknown.
    [[nodiscard]] double fraction_read() const noexcept;

private:
    struct Input;
    struct Entry {
        std::uint64_t buffer, bytes, acquired_line, released_line;  // a line of 0: not released
        std::uint32_t pool;
    };

    void read_header();
    bool next_line(std::string_view& line);
    std::uint64_t number(std::string_view text, const char* column) const;
    std::uint32_t pool_index(std::string_view name);
    void note_acquire(Event& event, std::uint64_t id);
    void note_release(Event& event, std::uint64_t id);
    /// Return the text of an error that names the line, or the file.
    [[nodiscard]] std::string in_line(const std::string& expected, std::string_view found) const;
    [[nodiscard]] std::string in_file(const std::string& why) const;

    std::string path_;
    std::unique_ptr<Input> input_;
    std::uint64_t line_ = 0;
    std::vector<std::string> pools_;
    std::unordered_map<std::string, std::uint32_t> pool_indices_;
    std::unordered_map<std::uint64_t, Entry> ids_;
};

/// A whole trace. The event at index i stands in line i + 2 of its file.
struct Trace {
    std::string name;  // the path it was read from
    std::vector<std::string> pools;
    std::vector<Event> events;
    std::uint64_t buffers = 0;  // that were acquired
};

/// Reads a whole trace. Calls `progress` now and then with the fraction read, from 0 to 1.
Trace read_trace(const std::string& path, const std::function<void(double)>& progress = {});

}  // namespace cistern::trace
