#!/bin/sh
# symbols.sh LIBRARY HEADER: compares the C functions that the library exports, and those that the
# header declares, with symbols.txt. Programs depend on them: add lines there, remove none.
set -eu
library=$1 header=$2 list=$(dirname "$0")/symbols.txt

nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [A-Z] \(cistern_\)/\1/p' | LC_ALL=C sort |
    diff "$list" - || { echo "the library exports other functions than symbols.txt lists"; exit 1; }
sed -n 's/^CISTERN_API .*[ *]\(cistern_[a-z_]*\)(.*/\1/p' "$header" | LC_ALL=C sort |
    diff "$list" - || { echo "the header declares other functions than symbols.txt lists"; exit 1; }
