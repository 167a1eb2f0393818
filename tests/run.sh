#!/bin/sh
# tests/run.sh - runs test programs and adds up what they print.
#
#   run.sh build OUT COMMAND...
#                           runs the command that makes OUT; keeps processor seconds in OUT.s
#   run.sh one PROGRAM      runs it with an empty disk cache of its own; output into PROGRAM.out,
#                           processor seconds (its compilers included) into PROGRAM.cpu.
#                           Succeeds also when tests fail: the sum tells. TC_TEST_SOAK=1: its long
#                           form; TC_TEST_SOAK=part/program: the long form of that one alone
#   run.sh sum BUILD OUT... a line per part (the folder of an OUT), where the processor time went,
#                           and the totals as last line; BUILD is the folder of the libraries
set -u

# Into file $1 the processor seconds, user and sys, of all processes that ended below this one.
processor() {
    times >"$1.tmp" # a pipe would ask a shell of its own
    awk 'NR == 2 { split($1, u, "m"); split($2, s, "m"); print 60 * (u[1] + s[1]) + u[2] + s[2] }' \
        "$1.tmp" >"$1"
    rm -f "$1.tmp"
}

build() {
    out=$1
    shift
    echo "CC $out"
    "$@"
    code=$?
    processor "$out.s"
    return $code
}

one() {
    program=$1
    out=$program.out
    part=$(basename "$(dirname "$program")")
    case "${TC_TEST_SOAK:-}" in
    1 | "$part/$(basename "$program")") export TC_TEST_SOAK=1 ;;
    *) unset TC_TEST_SOAK ;;
    esac
    rm -rf "$program.cache"
    started=$(date +%s)
    TC_CACHE_DIR=$(pwd)/$program.cache timeout "${TEST_LIMIT_S:-600}" "$program" ${TEST_ARGS:-} \
        >"$out.tmp" 2>&1
    code=$?
    processor "$program.cpu"
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

# The sum of seconds in files.
seconds() {
    cat "$@" 2>/dev/null | awk '{ s += $1 } END { print s + 0 }'
}

sum() {
    libraries=$1
    shift
    {
        echo "libraries $(seconds "$libraries"/*.o.s)"
        for out in "$@"; do
            program=${out%.out}
            echo "$(basename "$(dirname "$out")") $(basename "$program") $(seconds "$program.s") $(seconds "$program.cpu")" \
                "$(sed -n 's/^tc-test: //p' "$out" | tail -n 1)"
        done
    } | awk '
        NF == 2 { built = $2; next }
        { # part program built ran P passed, F failed, S skipped, C compiler runs, T s
            if (!($1 in programs)) { order[++n] = $1 }
            programs[$1]++
            b[$1] += $3; t[$1] += $4; p[$1] += $5; f[$1] += $7; s[$1] += $9; c[$1] += $11
            slow[NR] = sprintf("%8.2f s to build %8.2f s to run  %s/%s", $3, $4, $1, $2)
            all[NR] = $3 + $4
        }
        END {
            for (i = 1; i <= 8; i++) {
                most = 0
                for (k in all) { if (!most || all[k] > all[most]) { most = k } }
                if (most) { print slow[most]; delete all[most] }
            }
            printf "%8.2f s to build  the library, in its forms\n", built
            for (i = 1; i <= n; i++) {
                k = order[i]
                printf "%-8s %5d passed %4d failed %4d skipped %5d compiler runs " \
                    "%8.2f s to build %8.2f s to run\n", k, p[k], f[k], s[k], c[k], b[k], t[k]
                P += p[k]; F += f[k]; S += s[k]; C += c[k]; T += t[k]; B += b[k]
            }
            printf "%-8s %5d programs %37d compiler runs %8.2f s to build %8.2f s to run\n", \
                "all", NR - 1, C, B + built, T
            printf "%d passed, %d failed, %d skipped\n", P, F, S
            exit F > 0 || P == 0
        }'
}

case ${1:-} in
build) shift && build "$@" ;;
one) one "$2" ;;
sum) shift && sum "$@" ;;
*) echo "usage: run.sh build OUT COMMAND... | one PROGRAM | sum BUILD OUT..." >&2 && exit 2 ;;
esac
