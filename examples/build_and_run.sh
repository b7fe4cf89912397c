#!/bin/sh
# build_and_run.sh COMPILER SOURCE LIBRARIES INCLUDE WORK: builds an example in a language other than
# C++ with libcistern.so and compares what it prints with its .out file.
set -eu
compiler=$1 source=$2 libraries=$3 include=$4
program=$5/$(basename "$source" | tr . _)
link="-L$libraries -lcistern -Wl,-rpath,$libraries"

# shellcheck disable=SC2086 # the flags are words
case $source in
    *.c)
        "$compiler" -std=c11 -Wall -Wextra -Werror -pedantic -O2 -I "$include" "$source" \
            -o "$program" $link
        ;;
    *.f90)
        mkdir -p "$program.modules"
        "$compiler" -std=f2018 -Wall -Wextra -Werror -O2 -J "$program.modules" "$source" \
            -o "$program" $link
        ;;
    *.cu)
        "$compiler" -std=c++20 -Werror all-warnings -I "$include" "$source" -o "$program" \
            -L"$libraries" -lcistern -Xlinker -rpath -Xlinker "$libraries"
        ;;
    *.rs)
        "$compiler" --edition 2021 -D warnings -A dead_code -O "$source" -o "$program" \
            -L "native=$libraries" -C "link-arg=-Wl,-rpath,$libraries"
        ;;
esac
printed=$("$program")
case $source in
    *.cu) ;; # what it prints depends on the device
    *) printf '%s\n' "$printed" | diff "${source%.*}.out" - ;;
esac
