#pragma once
// Lets other Python threads run while something slow happens.

#include <Python.h>

#include <cstddef>

namespace cistern::python {

inline constexpr std::size_t much_to_zero = std::size_t{256} << 10;
inline constexpr std::size_t much_to_fetch = std::size_t{4} << 20;

class WithoutGil {
public:
    explicit WithoutGil(bool slow) noexcept : state_(slow ? PyEval_SaveThread() : nullptr) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        if (state_ != nullptr) PyEval_RestoreThread(state_);
    }

private:
    PyThreadState* state_;
};

}  // namespace cistern::python
