#!/bin/sh
# tools/size.sh - what each room adds to the implementation. Run from the project's root (make size).
# Text and data: of an object of tc.h at -O2, each symbol counted where its definition's line stands.
# A function that is inlined whole counts where it went. Seconds: processor time of the room compiled
# alone at -O2 as inside the header, less that of an empty room.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CC=${CC:-cc}

# Processor seconds (user) of a command.
seconds() {
    sh -c '"$@" >/dev/null 2>&1; times' sh "$@" | awk 'NR == 2 { split($1, t, /[ms]/); print t[1] * 60 + t[2] }'
}

printf '#define TC_IMPLEMENTATION\n#include "tc.h"\n' >"$work/all.c"
printf '#include "base/impl_begin.h"\n' >"$work/open.h"
: >"$work/none.c"
for level in -O0 -O2; do
    echo "whole: $(seconds $CC -std=gnu11 $level -I. -c "$work/all.c" -o "$work/time.o") s at $level"
done
$CC -std=gnu11 -O2 -g -I. -c "$work/all.c" -o "$work/all.o" || exit 1
nm -S -l -t d "$work/all.o" >"$work/symbols"
room="$CC -std=gnu11 -O2 -DTCI_SEPARATE -Isrc -include $work/open.h -o $work/room.o -c"
empty=$(seconds $room "$work/none.c")
for file in $(sed -n 's,^#include "\(.*\.c\)",src/\1,p' src/tc.h src/tc_cpu.h); do
    echo "${file#src/} $(seconds $room "$file")"
done >"$work/seconds"

# 1: room seconds. 2: the headers, for their banners. 3: address size type name file:line.
awk -v empty="$empty" '
    FILENAME ~ /seconds$/ { time[$1] = $2 - empty; next }
    FILENAME ~ /\.h$/ {
        if (/^\/\* ---- src\/[a-z_0-9\/.]* ----/ || /^\/\* ---- src\/.*, continued ----/) {
            now = $3; sub(/^src\//, "", now); sub(/,$/, "", now)
        }
        of[FILENAME, FNR] = now; next
    }
    NF >= 5 && $3 ~ /^[tTdDrRbB]$/ {
        n = split($NF, at, ":"); k = split(at[1], path, "/")
        r = of[path[k], at[n]]; r = r ? r : "?"
        kind = tolower($3); if (kind == "t") { text[r] += $2 } else if (kind != "b") { data[r] += $2 }
    }
    END {
        for (r in text) { rooms[r] = 1 }
        for (r in data) { rooms[r] = 1 }
        for (r in rooms) {
            printf "%8d %8d %8.2f  %s\n", text[r], data[r], time[r], r
            sum += text[r]; sum_data += data[r]; total += time[r]
        }
        printf "%8d %8d %8.2f  %s\n", sum, sum_data, total, "all"
    }' "$work/seconds" tc.h tc_cpu.h "$work/symbols" | sort -rn >"$work/table"
printf '%8s %8s %8s  %s\n' text data seconds room
cat "$work/table"
