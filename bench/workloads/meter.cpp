// Peak memory is the kernel's: VmHWM, set back to the present size before the run. So it counts what
// a store holds wherever it got it, and pages that nobody touched count nothing.

#include "meter.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

#include "scratch.hpp"

namespace cistern::workloads {

namespace {

/// Returns a size from /proc/self/status, in bytes; 0 where there is none.
std::uint64_t status_bytes(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::uint64_t kibibytes = 0;
        if (word == key && status >> kibibytes) return kibibytes * 1024;
    }
    return 0;
}

/// Sets VmHWM to VmRSS. Where the kernel refuses, growth counts from the peak so far.
void reset_peak() {
    std::ofstream file("/proc/self/clear_refs");
    file << "5" << std::flush;
}

}  // namespace

std::uint64_t page_faults() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

Meter::Meter(const Budget& budget, std::size_t expected_bytes) : budget_(budget) {
    { const Scratch touched(expected_bytes / sizeof(double)); }
    reset_peak();
    resident_bytes_ = status_bytes("VmHWM:");
    page_faults_ = page_faults();
    begin_ = Clock::now();
}

bool Meter::more() {
    ++steps_;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return steps_ < budget_.steps && seconds < budget_.seconds;
}

Report Meter::report(double checksum) const {
    Report report;
    report.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    report.page_faults = page_faults() - page_faults_;
    const std::uint64_t peak = status_bytes("VmHWM:");
    report.peak_held_bytes = peak - std::min(peak, resident_bytes_);
    report.peak_live_bytes = live.peak();
    report.requests = live.requests();
    report.steps = steps_;
    report.checksum = checksum;
    return report;
}

}  // namespace cistern::workloads
