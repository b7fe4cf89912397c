#pragma once
// Traces for tests: written to a file that goes away, or found beside the checkout.

#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace cistern::test {

inline constexpr std::string_view trace_header = "event,pool,id,bytes,stream\n";

/// A file in the temporary folder, removed with this object.
class TraceFile {
public:
    /// Writes the header and these rows.
    static TraceFile with_rows(std::string_view rows) {
        return TraceFile(std::string(trace_header) + std::string(rows));
    }
    /// The same, through gzip.
    static TraceFile gzipped(std::string_view rows) {
        TraceFile file("");
        const std::string text = std::string(trace_header) + std::string(rows);
        gzFile out = gzopen(file.path().c_str(), "wb");
        gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
        gzclose(out);
        return file;
    }
    /// Writes the text as it is.
    explicit TraceFile(std::string_view text) : path_(unused_path()) {
        std::ofstream(path_, std::ios::binary) << text;
    }
    ~TraceFile() {
        if (!path_.empty()) std::filesystem::remove(path_);
    }
    TraceFile(TraceFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
    TraceFile& operator=(TraceFile&&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    void keep_bytes(std::size_t bytes) const { std::filesystem::resize_file(path_, bytes); }
    [[nodiscard]] std::size_t size() const { return std::filesystem::file_size(path_); }

private:
    static std::string unused_path() {
        static std::atomic<int> count{0};
        const std::string name =
            "cistern_trace_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".csv";
        return std::filesystem::temp_directory_path() / name;
    }
    std::string path_;
};

/// Returns the folder of recorded traces; it lies beside the checkout and need not be there.
inline std::filesystem::path recorded_traces() {
    return std::filesystem::path(__FILE__).parent_path() / "../../../shared/traces";
}

}  // namespace cistern::test
