#!/bin/sh
# headers.sh COMPILER INCLUDE: compiles every public header alone, twice in one file, under the
# warnings a strict consumer may use. One needs the CUDA toolkit; examples/cuda/ compile it.
set -eu
compiler=$1 include=$2

find "$include" -type f ! -name cuda_resource.hpp -printf '%P\n' | sort | while read -r header; do
    printf '#include "%s"\n#include "%s"\nint main() {}\n' "$header" "$header" |
        "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion \
            -Werror -I "$include" -fsyntax-only -x c++ - ||
        { echo "$header does not compile alone"; exit 1; }
done
