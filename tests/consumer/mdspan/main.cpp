// Arrays and views as std::mdspan, in a standard library that has it.
#include <cistern/cistern.hpp>
#include <cstddef>
#include <cstdio>
#include <mdspan>

#if !defined(__cpp_lib_mdspan)
#error "this test needs a standard library with std::mdspan"
#endif

using Matrix = std::mdspan<double, std::dextents<std::size_t, 2>>;

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("does not hold: %s\n", what);
    ++failures;
}

double corner(Matrix matrix) { return matrix[matrix.extent(0) - 1, matrix.extent(1) - 1]; }

}  // namespace

int main() {
    cistern::Pool pool;
    auto array = pool.zeros<double>(3, 4);
    const cistern::ArrayView<double, 2> view = array;

    auto matrix = array.mdspan();
    matrix[1, 2] = 5.0;
    array(2, 3) = 7.0;

    expect(matrix.extent(0) == 3 && matrix.extent(1) == 4, "the extents are the array's");
    expect(matrix.data_handle() == array.data(), "nothing is copied");
    expect(array(1, 2) == 5.0, "a write through the mdspan is seen in the array");
    expect(view.mdspan()[1, 2] == 5.0, "a view converts too");
    expect(corner(array) == 7.0, "an array converts when passed");
    expect(corner(view) == 7.0, "a view converts when passed");
    return failures;
}
