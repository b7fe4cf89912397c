#!/bin/sh
# pkg_config.sh COMPILER shared|static PKG_CONFIG_PATH WORK: builds and runs main.cpp with nothing
# but what pkg-config says.
set -eu
compiler=$1 kind=$2 work=$4
export PKG_CONFIG_PATH="$3"

source=$(dirname "$0")/main.cpp
program=$work/pkg_config_$kind
version=-DBUILD_SYSTEM_SAYS="\"$(pkg-config --modversion cistern)\""
if [ "$kind" = shared ]; then
    # shellcheck disable=SC2046 # the flags are words
    "$compiler" -std=c++20 "$version" "$source" -o "$program" $(pkg-config --cflags --libs cistern) \
        -Wl,-rpath,"$(pkg-config --variable=libdir cistern)"
else
    # shellcheck disable=SC2046
    "$compiler" -std=c++20 "$version" "$source" -o "$program" -static \
        $(pkg-config --static --cflags --libs cistern)
fi
"$program"
