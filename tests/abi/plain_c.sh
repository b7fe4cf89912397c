#!/bin/sh
# plain_c.sh COMPILER SOURCE LIBRARIES INCLUDE WORK: compiles, links and runs a C program with nothing
# but a C compiler and libcistern.so, and checks that it needs no C++ itself.
set -eu
compiler=$1 source=$2 libraries=$3 include=$4
program=$5/plain_$(basename "$source" .c)

"$compiler" -std=c11 -Wall -Wextra -Werror -pedantic -O1 -I "$include" -c "$source" -o "$program.o"
if nm -u "$program.o" | grep -E ' (_Z|__cxa_|__gxx_|_Unwind_)'; then
    echo "the object needs C++"
    exit 1
fi
nm -u "$program.o" | grep -q ' cistern_' || { echo "the object does not use Cistern"; exit 1; }
"$compiler" "$program.o" -o "$program" -L "$libraries" -lcistern -pthread -Wl,-rpath,"$libraries"
"$program"
