#!/bin/sh
# tools/dims.sh - computing with a size by C's operators, instead of tci_dim's functions, is found.
#
# In: the rooms. Out: the places, and 1 if there are any. Sizes are made pointers to functions
# (TCI_DIM_OPAQUE), which GCC takes from numbers, and compares with == and !=, but neither adds,
# multiplies, orders nor makes numbers of without saying so; a list of them is none of numbers. The
# rooms of base/ that are those functions are left out. Needs GCC: the words are its own.
set -u
cd "$(dirname "$0")/.." || exit 1
"${CC:-cc}" --version 2>/dev/null | grep -q 'Free Software' || { echo "skipped: no GCC"; exit 0; }

found=$(mktemp) && trap 'rm -f "$found"' EXIT
for room in $(ls "$@" | grep -v '^src/base/dim'); do
    "${CC:-cc}" -std=gnu11 -DTCI_SEPARATE -DTCI_DIM_OPAQUE -DTC_DYNAMIC_SHAPES -DTC_CUDA \
        -fsyntax-only -fmax-errors=0 -fno-diagnostics-show-caret -Wno-all -Wextra -Wpointer-arith \
        -Wpedantic -Wint-conversion "$room" 2>&1 |
        sed -n -e '/makes pointer from integer/d' \
            -e '/error:\|integer from pointer\|in arithmetic\|ordered comparison\|different size/p' \
            -e '/incompatible pointer type/p' \
            -e '/comparison between pointer and integer/p'
done | sort -u | while IFS=: read -r file line column rest; do
    case $rest in # == and != are what may stand there
    *'comparison between'*)
        sed -n "${line}p" "$file" | cut -c "$column-" | grep -q '^[=!]=' && continue ;;
    esac
    echo "$file:$line:$column:$rest"
done >"$found"
cat "$found"
[ ! -s "$found" ]
