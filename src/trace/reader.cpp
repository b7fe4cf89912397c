// Reading: a window over the inflated file, cut into lines, cut into fields; nothing is copied but
// the names of pools. Invariant: every event returned is consistent with all returned before it, so
// that who replays them need not check again.

#include "trace/reader.hpp"

#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "cistern/error.hpp"

namespace cistern::trace {

namespace {

constexpr std::string_view header = "event,pool,id,bytes,stream";
constexpr std::size_t columns = 5;
constexpr std::size_t window_bytes = std::size_t{256} << 10;  // a line must fit in it

/// Returns the text in quotes, short and printable, for an error.
std::string quoted(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result = "'";
    for (const char c : text.substr(0, longest)) {
        const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
        result += printable ? c : '?';
    }
    result += text.size() > longest ? "…'" : "'";
    return result;
}

/// Cuts a row into its fields; returns how many there are, also beyond `fields`.
std::size_t split(std::string_view row, std::array<std::string_view, columns>& fields) {
    std::size_t count = 0;
    for (std::size_t begin = 0;; ++count) {
        const std::size_t comma = row.find(',', begin);
        if (count < columns) fields[count] = row.substr(begin, comma - begin);
        if (comma == std::string_view::npos) return count + 1;
        begin = comma + 1;
    }
}

}  // namespace

struct Reader::Input {
    /// Returns null and says in errno why, which is 0 where zlib had no memory.
    static gzFile open(const std::string& path) {
        errno = 0;
        return gzopen(path.c_str(), "rb");
    }
    explicit Input(const std::string& path) : file(open(path)), window(window_bytes) {
        if (file == nullptr) return;
        struct stat status = {};
        if (::stat(path.c_str(), &status) == 0) stored_bytes = static_cast<double>(status.st_size);
        gzbuffer(file, window_bytes);
    }
    ~Input() {
        if (file != nullptr) gzclose_r(file);
    }
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    gzFile file;
    double stored_bytes = 0;
    std::vector<char> window;
    std::size_t begin = 0, end = 0;  // what of the window is not yet read
    bool exhausted = false;
};

Reader::Reader(const std::string& path) : path_(path), input_(std::make_unique<Input>(path)) {
    if (input_->file == nullptr) {
        throw InvalidArgument(
            in_file(std::generic_category().message(errno != 0 ? errno : ENOMEM)));
    }
    read_header();
}

Reader::~Reader() = default;

double Reader::fraction_read() const noexcept {
    if (input_->stored_bytes <= 0) return 0;
    return static_cast<double>(gzoffset(input_->file)) / input_->stored_bytes;
}

bool Reader::next(Event& event) {
    std::string_view line;
    if (!next_line(line)) return false;
    std::array<std::string_view, columns> fields;
    const std::size_t found = split(line, fields);
    if (found != columns) {
        throw InvalidArgument(in_line(
            "expected 5 fields (" + std::string(header) + "), found " + std::to_string(found),
            line));
    }
    const auto& [kind, pool, id, bytes, stream] = fields;
    if (kind == "a") {
        event.kind = EventKind::acquire;
    } else if (kind == "r") {
        event.kind = EventKind::release;
    } else {
        throw InvalidArgument(in_line("unknown event, expected a (acquire) or r (release)", kind));
    }
    event.pool = pool_index(pool);
    event.bytes = number(bytes, "bytes");
    event.stream = number(stream, "stream");
    const std::uint64_t identity = number(id, "id");
    if (event.kind == EventKind::acquire) {
        note_acquire(event, identity);
    } else {
        note_release(event, identity);
    }
    return true;
}

void Reader::read_header() {
    std::string_view line;
    if (!next_line(line)) throw InvalidArgument(in_file("the file is empty, expected a trace"));
    if (line != header)
        throw InvalidArgument(in_line("expected the header " + quoted(header) + ", found", line));
}

/// Returns false at the end of the file. The line is valid until the next call.
bool Reader::next_line(std::string_view& line) {
    Input& in = *input_;
    for (;;) {
        const char* const begin = in.window.data() + in.begin;
        const std::size_t left = in.end - in.begin;
        const void* const newline = left == 0 ? nullptr : std::memchr(begin, '\n', left);
        if (newline != nullptr || (in.exhausted && left != 0)) {
            const auto* const end = static_cast<const char*>(newline);
            const std::size_t length =
                end == nullptr ? left : static_cast<std::size_t>(end - begin);
            in.begin += length + (end == nullptr ? 0 : 1);
            line = {begin, length};
            if (line.ends_with('\r')) line.remove_suffix(1);
            ++line_;
            return true;
        }
        if (in.exhausted) return false;
        if (left == in.window.size()) {
            ++line_;
            throw InvalidArgument(in_line("the line is longer than 256 KiB", {begin, left}));
        }
        std::memmove(in.window.data(), begin, left);
        in.begin = 0;
        in.end = left;
        const auto room = static_cast<unsigned>(in.window.size() - left);
        const int read = gzread(in.file, in.window.data() + left, room);
        int status = Z_OK;
        const char* const message = gzerror(in.file, &status);
        // Z_BUF_ERROR: the gzip stream stops in its middle; gzread may still have returned bytes.
        if (status == Z_BUF_ERROR) throw InvalidArgument(in_file("the gzip file is truncated"));
        if (status == Z_ERRNO)
            throw InvalidArgument(in_file(std::generic_category().message(errno)));
        if (read < 0)
            throw InvalidArgument(in_file(std::string("the gzip file is damaged: ") + message));
        in.end += static_cast<std::size_t>(read);
        in.exhausted = read == 0;
    }
}

std::uint64_t Reader::number(std::string_view text, const char* column) const {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) {
        throw InvalidArgument(
            in_line(std::string(column) + " is too large, expected at most 2^64 - 1", text));
    }
    if (error != std::errc() || stop != end) {
        throw InvalidArgument(
            in_line(std::string(column) + " is no number, expected an unsigned integer", text));
    }
    return value;
}

std::uint32_t Reader::pool_index(std::string_view name) {
    // Most traces name one pool, or change it rarely.
    if (!pools_.empty() && pools_.back() == name) {
        return static_cast<std::uint32_t>(pools_.size() - 1);
    }
    const auto next = static_cast<std::uint32_t>(pools_.size());
    const auto [entry, is_new] = pool_indices_.try_emplace(std::string(name), next);
    if (is_new) pools_.emplace_back(name);
    return entry->second;
}

void Reader::note_acquire(Event& event, std::uint64_t id) {
    event.buffer = ids_.size();
    const auto [entry, is_new] =
        ids_.try_emplace(id, Entry{event.buffer, event.bytes, line_, 0, event.pool});
    if (!is_new) {
        throw InvalidArgument(in_line("the id was acquired before, in line " +
                                          std::to_string(entry->second.acquired_line) +
                                          "; expected a new one",
                                      std::to_string(id)));
    }
}

void Reader::note_release(Event& event, std::uint64_t id) {
    const auto found = ids_.find(id);
    if (found == ids_.end()) {
        throw InvalidArgument(
            in_line("the id was never acquired; expected one that is live", std::to_string(id)));
    }
    Entry& entry = found->second;
    const auto acquired = [&] {
        return " (acquired in line " + std::to_string(entry.acquired_line) + "), found";
    };
    if (entry.released_line != 0) {
        throw InvalidArgument(in_line("the id was released before, in line " +
                                          std::to_string(entry.released_line) +
                                          "; expected one that is live",
                                      std::to_string(id)));
    }
    if (entry.pool != event.pool) {
        throw InvalidArgument(
            in_line("expected the id's pool " + quoted(pools_[entry.pool]) + acquired(),
                    pools_[event.pool]));
    }
    if (entry.bytes != event.bytes) {
        throw InvalidArgument(
            in_line("expected the id's " + std::to_string(entry.bytes) + " bytes" + acquired(),
                    std::to_string(event.bytes)));
    }
    entry.released_line = line_;
    event.buffer = entry.buffer;
}

std::string Reader::in_line(const std::string& expected, std::string_view found) const {
    return path_ + ":" + std::to_string(line_) + ": " + expected + ": " + quoted(found);
}

std::string Reader::in_file(const std::string& why) const {
    const std::string after = line_ == 0 ? "" : ", after line " + std::to_string(line_);
    return path_ + ": cannot read the trace" + after + ": " + why;
}

Trace read_trace(const std::string& path, const std::function<void(double)>& progress) {
    constexpr std::size_t progress_interval = 1 << 16;
    Reader reader(path);
    Trace trace{.name = path, .pools = {}, .events = {}, .buffers = 0};
    for (Event event; reader.next(event);) {
        trace.events.push_back(event);
        trace.buffers += event.kind == EventKind::acquire ? 1 : 0;
        if (progress && trace.events.size() % progress_interval == 0) {
            progress(reader.fraction_read());
        }
    }
    trace.pools = reader.pools();
    return trace;
}

}  // namespace cistern::trace
