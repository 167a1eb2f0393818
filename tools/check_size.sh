#!/bin/sh
# tools/check_size.sh - compares the size of headers and programs with tools/size_budget.txt. Run from
# the project's root (make check-size). Prints what each measures and may; fails where one is larger.
# Bytes depend on the compiler: without the gcc of the budgets, for x86-64, only lines are compared.
set -u
CC=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=tests/include/cases/alone.c
libs="-lm -ldl -lpthread"
over=0

# compare WHAT MEASURED MOST
compare() {
    if [ "$2" -gt "$3" ]; then
        echo "FAIL $1: $2, at most $3"
        over=1
    else
        echo "$1: $2, at most $3"
    fi
}

most() {
    awk -v what="$1" -v header="${2:-}" '$1 == what && (header == "" || $2 == header) { print $NF }' \
        tools/size_budget.txt
}

for header in tc*.h; do
    budget=$(most lines "$header")
    if [ -n "$budget" ]; then
        compare "lines of $header" "$(wc -l <"$header")" "$budget"
    else
        echo "lines of $header: $(wc -l <"$header"), no row in tools/size_budget.txt"
    fi
done

version=$(most gcc)
case "$($CC --version 2>/dev/null | head -n 2 | tr '\n' ' ') $($CC -dumpmachine) $($CC -dumpversion)" in
*'Free Software'*x86_64*" $version" | *'Free Software'*x86_64*" $version".*) ;;
*)
    echo "bytes: skipped, the budgets are those of gcc $version for x86-64"
    exit $over
    ;;
esac

# measure NAME FLAGS...: the stripped program's bytes into $work/NAME.
measure() {
    name=$1
    shift
    $CC -std=gnu11 -O2 -s -I. "$@" "$program" -o "$work/$name.out" $libs && wc -c <"$work/$name.out" >"$work/$name"
}

{
    measure plain
    $CC -std=gnu11 -O2 -I. -c tests/tc_impl.c -o "$work/tc.o" && size "$work/tc.o" | awk 'NR == 2 { print $1 }' >"$work/text"
} &
{
    measure gc -ffunction-sections -fdata-sections -Wl,--gc-sections -fno-asynchronous-unwind-tables -fno-unwind-tables
    measure static -DTC_STATIC
} &
wait
for what in text plain gc static; do
    if [ -s "$work/$what" ]; then
        compare "$what, bytes" "$(($(cat "$work/$what")))" "$(most $what)"
    else
        echo "FAIL $what: does not compile"
        over=1
    fi
done
exit $over
