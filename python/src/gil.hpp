#pragma once
// Lets other Python threads run while something slow happens.

#include <Python.h>
#include <unistd.h>

#include <cstddef>

namespace cistern::python {

inline constexpr std::size_t much_to_zero = std::size_t{256} << 10;
inline constexpr std::size_t much_to_fetch = std::size_t{4} << 20;
inline constexpr std::size_t much_to_give_back = std::size_t{32} << 20;

class WithoutGil {
public:
    explicit WithoutGil(bool slow = true) noexcept : state_(slow ? PyEval_SaveThread() : nullptr) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        if (state_ != nullptr) come_back();
    }

private:
    // When the interpreter has ended meanwhile, Python before 3.14 ends the thread here, through frames
    // of C++ that cannot be left so: it stays until the process ends, as later versions have it.
    void come_back() noexcept {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {  // what ends a thread
            for (;;) pause();
        }
    }

    PyThreadState* state_;
};

}  // namespace cistern::python
