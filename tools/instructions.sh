#!/bin/sh
# tools/instructions.sh [update] - counts the instructions of the programs of bench/instructions.c
# under callgrind and compares them with bench/results/instructions.txt. Run from the project's root
# (make instructions). Fails where one executes more than 3 % more; update writes what it counts now.
# Counts depend on compiler, library and processor (plans follow its caches and vectors): others than
# those of the record are a skip.
set -u
CC=${CC:-cc}
record=bench/results/instructions.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v valgrind >/dev/null 2>&1 || { echo "instructions: skipped, no valgrind"; exit 0; }
processor=$(sed -n -e 's/^\(cpu family\|model\|stepping\|cache size\)[[:space:]]*: /\1 /p' /proc/cpuinfo |
    head -n 4 | tr '\n' ',')
with="$($CC -dumpfullversion -dumpversion) $($CC -dumpmachine) glibc $(ldd --version 2>/dev/null | sed -n '1s/.* //p')"
with="$with, $processor $(getconf _NPROCESSORS_ONLN 2>/dev/null) processors"
if [ "${1:-}" != update ] && ! grep -qxF "# with $with" "$record"; then
    echo "instructions: skipped, the record is $(sed -n 's/^# with //p' "$record"), this is $with"
    exit 0
fi

$CC -std=gnu11 -O2 -w -I. bench/instructions.c -o "$work/program" -lm -ldl -lpthread || exit 1
export TC_CACHE_DIR="$work/cache" TC_THREADS=1 TC_VECTOR=256
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$work/program" "$1" 2>&1 |
        sed -n 's/.*Collected : *//p'
}
count warm >/dev/null # fills the cache
for name in record plan_softmax plan_attention plan_network run run_profiled marks_off marks_on warm; do
    echo "$name $(count $name)"
done >"$work/now"

if [ "${1:-}" = update ]; then
    {
        echo "# Instructions of the programs of bench/instructions.c, $(date -u +%Y-%m-%d): make instructions compares."
        echo "# with $with"
        cat "$work/now"
    } >"$record"
    cat "$record"
    exit 0
fi
awk 'FNR == NR { if (!/^#/) { was[$1] = $2 } next }
    !($1 in was) || $2 == "" { print "FAIL " $1 ": not counted"; bad = 1; next }
    {
        more = 100 * ($2 - was[$1]) / was[$1]
        printf "%s%s: %d instructions, %+.1f %%\n", (more > 3 ? "FAIL " : ""), $1, $2, more
        bad = bad || more > 3
    }
    END { exit bad }' "$record" "$work/now"
