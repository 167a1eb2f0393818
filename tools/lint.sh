#!/bin/sh
# tools/lint.sh - what the compiler does not check: line width, forbidden calls, prefixes, room order,
# circles of files, layout.
# Prints each finding; fails when there is one. Run from the project's root (make lint).
set -u
found=$(mktemp)
work=$(mktemp -d)
trap 'rm -rf "$found" "$work"' EXIT

files=$(find src tests tools examples bench \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) | sort)

# 1. at most 100 columns, no tabs, no trailing blanks
awk '/\t/ { print FILENAME ":" FNR ": tab" }
    / $/ { print FILENAME ":" FNR ": trailing blank" }
    { gsub(/[\200-\277]/, "") } # count characters, not bytes
    length($0) > 100 { print FILENAME ":" FNR ": " length($0) " columns" }' $files >>"$found"

# ... and the first examples of a learner are short
awk 'FNR == 60 { print FILENAME ": 60 lines and more" }' examples/0[1-5]_*.c >>"$found"

# ... and so are the page that is read first and the manual
awk 'FNR == 251 { print FILENAME ": more than 250 lines" }' README.md src/api/manual.h >>"$found"

# 2. the library never ends the process and never starts a shell; nothing is left for later
grep -nE '(^|[^a-z_])(abort|exit|_exit|system|popen) *\(' $(find src -name '*.[ch]') \
    | sed 's/$/  <- forbidden call/' >>"$found"
grep -n -e '-ffast-math' $(find src -name '*.[ch]' ! -path src/base/impl_begin.h) \
    | sed 's/$/  <- breaks results, also when only linked/' >>"$found"
grep -n 'setjmp(' $(find src -mindepth 2 -name '*.c') \
    | grep -vE ': +if \(!?setjmp\([^()]*\)( == 0)?\) \{$' \
    | sed 's/$/  <- not a context that C11 7.13.1.1 allows/' >>"$found"
grep -nE '\b(TO''DO|FIX''ME|XX''X)\b' $files | sed 's/$/  <- unfinished/' >>"$found"

# ... and comments name their subject: neither inverted questions nor "What ..." open one
grep -nE '/\* (What|Which|Who|Whoever|Those|Of which|Such|Is|Has|Does|Are|Had|Were) ' \
    $(find src -mindepth 2 -name '*.[ch]' ! -name '*.gen.h') | sed 's/$/  <- name the subject/' >>"$found"

# ... nor say "so many" for a number that is given, nor open a sentence with "Those" or "Such"
grep -nE '\bso many\b|(^ *\*|[.:]) (Those|Such) ' $(find src -mindepth 2 -name '*.[ch]' ! -name '*.gen.h') \
    | grep -v '"[^"]*so many' | sed 's/$/  <- name the number or the subject/' >>"$found"

# 3. every name of the joined header starts with tc_, tci_, TC_ or TCI_
cat >"$work/all.c" <<'END'
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc_engines.h"
END
cat >"$work/system.c" <<'END'
#include "base/system_headers.h"
END
if ${CC:-cc} -std=gnu11 -O0 -Isrc -c "$work/all.c" -o "$work/all.o" 2>"$work/log"; then
    nm "$work/all.o" | awk 'NF == 3 && $NF !~ /^(tc_|tci_|__|\.L|_GLOBAL)/ && $NF !~ /\./ {
        print "symbol without a prefix: " $NF }' >>"$found"
    ${CC:-cc} -std=gnu11 -dM -E -Isrc "$work/all.c" | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort -u \
        >"$work/ours"
    ${CC:-cc} -std=gnu11 -dM -E -Isrc "$work/system.c" -pthread -include immintrin.h -include inttypes.h -include fenv.h 2>/dev/null \
        | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort -u >"$work/theirs"
    comm -23 "$work/ours" "$work/theirs" | grep -vE '^(TC_|TCI_|tc_|tci_|_|CPU_|CLONE_|SCHED_|FE_)' \
        | sed 's/^/macro without a prefix, or never undefined: /' >>"$found"
else
    { echo "src/tc.h does not compile; prefixes were not checked:"; head -n 5 "$work/log"; } >>"$found"
fi

# 4. a room includes only rooms above it. The order is that of src/tc.h; a header ranks as its .c, or as
#    the first .c of its folder; so do headers of src/tc_gpu.h, which the core asks. The
#    headers of debug/ are hooks that every stage may call.
grep -hoE '^#include "[a-z0-9_/]+\.[ch]"' src/tc.h src/tc_cpu.h src/tc_gpu.h src/tc_cuda.h \
    src/tc_onnx.h src/tc_comm.h src/tc_engines.h | sed 's/.*"\(.*\)"/\1/' >"$work/order"
for room in $(find src -mindepth 2 -name '*.[ch]' ! -name '*.gen.h'); do
    sed -n 's/^#include "\([^"]*\)".*/\1/p' "$room" | while read -r name; do
        at=$(dirname "$room")/$name
        at=$(echo "${at#src/}" | sed ':a;s#[^/]*/\.\./##;ta')
        [ -f "src/$at" ] || echo "$room: no such room: $name"
        echo "${room#src/} $at"
    done
done >"$work/includes"
find src -mindepth 2 -name '*.c' | sed 's#^src/##' | sort >"$work/rooms"
sed -n 's#^.include "../src/\(.*[.]c\)"#\1#p' tests/tc_impl.c | cat "$work/order" - | sort | comm -23 "$work/rooms" - | sed 's#.*#src/&: joined neither by a root under src/ nor for the tests#' >>"$found"
grep 'no such room' "$work/includes" >>"$found"
sed -n 's/^#include "\(.*\)\.c"/\1.h/p' src/tc_gpu.h >"$work/blocks"
awk 'FILENAME ~ /blocks$/ { early[$1] = 1; next }
    FILENAME ~ /order$/ {
        rank[$1] = FNR
        split($1, d, "/")
        if (/c$/ && !(d[1] in dir)) { dir[d[1]] = FNR }
        next
    }
    function of(f,    c, d) {
        c = f
        sub(/\.h$/, ".c", c)
        split(f, d, "/")
        return f in rank ? rank[f] : c in rank && !(f in early) ? rank[c] : dir[d[1]]
    }
    /no such room/ || $2 ~ /^debug\/.*h$/ || $2 ~ /gen\.h$/ { next }
    { split($1, a, "/"); split($2, b, "/")
      if (a[1] != b[1] && of($2) > of($1)) { print "src/" $1 ": includes " $2 ", a room below it" } }' \
    "$work/blocks" "$work/order" "$work/includes" >>"$found"

# 5. files in circles by calls: no more than so many, a number that only falls
IN_CIRCLES=58
${CC:-cc} -std=gnu11 -O1 tools/circles.c -o "$work/circles" &&
    ${CC:-cc} -std=gnu11 -E -Isrc "$work/all.c" 2>/dev/null | "$work/circles" $IN_CIRCLES >"$work/drawn"
in_circles=$?
tail -n 1 "$work/drawn"
[ "$in_circles" = 0 ] || cat "$work/drawn" >>"$found"

# 6. lines that decode the words of a CONTRACT, instead of asking graph/contraction_descriptor.h: its constructor,
#    its verifier, the judge, and those that only pass labels on
DECODED=8
grep -rnE 'tci_contract_labels\(|attr \+ 3\>' src --include='*.[ch]' |
    grep -vE '^src/(loop|kernel)/|^src/graph/contraction' >"$work/decoded"
[ "$(wc -l <"$work/decoded")" -le $DECODED ] ||
    sed "s/:[^:]*$/: decodes a CONTRACT; ask graph\/contraction_descriptor.h ($DECODED lines are allowed)/" "$work/decoded" >>"$found"

# 7. the layout of .clang-format, whose options are those of version 19
layout=
for program in "${CLANG_FORMAT:-clang-format-19}" clang-format build/venv/bin/clang-format; do
    case "$layout$("$program" --version 2>/dev/null)" in *' 19.'*) layout=$program ;; esac
done
if [ -n "$layout" ]; then
    "$layout" --dry-run $(find src tests tools examples bench -name '*.[ch]' ! -name '*.gen.h') 2>&1 |
        sed -n 's/:[0-9]*: warning: .*/: not the layout of .clang-format/p' | sort -u >>"$found"
else
    echo "layout: skipped, clang-format 19 is not here"
fi

cat "$found"
count=$(wc -l <"$found")
echo "lint: $count findings"
[ "$count" -eq 0 ]
