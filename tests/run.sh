#!/bin/sh
# tests/run.sh - runs test programs and adds up what they print.
#
#   run.sh one PROGRAM      runs it with an empty disk cache of its own; output into PROGRAM.out.
#                           Succeeds also when tests fail: the sum tells.
#   run.sh sum OUT...       a line per part (the folder an OUT lies in), then the totals as last line
set -u

one() {
    program=$1
    out=$program.out
    part=$(basename "$(dirname "$program")")
    rm -rf "$program.cache"
    started=$(date +%s)
    TC_CACHE_DIR=$(pwd)/$program.cache timeout "${TEST_LIMIT_S:-600}" "$program" ${TEST_ARGS:-} \
        >"$out.tmp" 2>&1
    code=$?
    rm -rf "$program.cache"
    if ! grep -q '^tc-test: ' "$out.tmp"; then
        {
            echo "$part/$(basename "$program"): FAIL ended with code $code (124: too slow) without a summary"
            echo "tc-test: 0 passed, 1 failed, 0 skipped, 0 compiler runs, $(($(date +%s) - started)) s"
        } >>"$out.tmp"
    fi
    mv "$out.tmp" "$out"
    grep -v '^tc-test: ' "$out" | tail -n 200
    echo "$part/$(basename "$program"): $(sed -n 's/^tc-test: //p' "$out" | tail -n 1)"
}

sum() {
    for out in "$@"; do
        echo "$(basename "$(dirname "$out")") $(grep '^tc-test: ' "$out" | tail -n 1)"
    done | awk '
        { # part tc-test: P passed, F failed, S skipped, C compiler runs, T s
            if (!($1 in programs)) { order[++n] = $1 }
            programs[$1]++
            p[$1] += $3; f[$1] += $5; s[$1] += $7; c[$1] += $9; t[$1] += $12
        }
        END {
            for (i = 1; i <= n; i++) {
                k = order[i]
                printf "%-8s %5d passed %4d failed %4d skipped %5d compiler runs %8.2f s\n", \
                    k, p[k], f[k], s[k], c[k], t[k]
                P += p[k]; F += f[k]; S += s[k]; C += c[k]; T += t[k]
            }
            printf "%-8s %5d programs %37d compiler runs %8.2f s\n", "all", NR, C, T
            printf "%d passed, %d failed, %d skipped\n", P, F, S
            exit F > 0 || P == 0
        }'
}

case ${1:-} in
one) one "$2" ;;
sum) shift && sum "$@" ;;
*) echo "usage: run.sh one PROGRAM | run.sh sum OUT..." >&2 && exit 2 ;;
esac
