#!/bin/sh
# tools/coverage.sh FOLDER [LEAST] - lines and branches of src/ that the tests of a build with
# COVER=--coverage TC=src have run, by folder and in all. Run from the project's root (make coverage).
# A line or branch counts as run if it is in any form of the library (symbolic sizes, CUDA, as shipped). The least
# covered files go to FOLDER/coverage.txt. Fails if fewer percent of the lines than LEAST were run.
set -u
folder=$1
least=${2:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v gcov >/dev/null 2>&1 || { echo "coverage: skipped, no gcov"; exit 0; }

# The forms of the library, and the programs that hold it themselves, whose notes are large.
find "$folder" -name '*.gcno' -size +900k | while read -r notes; do
    [ -f "${notes%.gcno}.gcda" ] || continue
    gcov -t -b -c "$notes" 2>/dev/null
done >"$work/gcov"
[ -s "$work/gcov" ] || { echo "coverage: no counts in $folder"; exit 1; }

# "    12:  345:text" after "-:    0:Source:src/plan/plan.c"; "branch  0 taken 3 (fallthrough)".
awk '
    /^ *-: *0:Source:/ {
        file = $0; sub(/.*Source:/, "", file); inside = sub(/^.*src\//, "", file)
        inside = inside && file ~ /^[a-z]+\/[a-z0-9_.]+$/; next
    }
    !inside { next }
    /^branch/ {
        key = file SUBSEP line SUBSEP $2; branch[key] = branch[key] + ($4 ~ /^[0-9]+$/ ? $4 : 0); next
    }
    /^ *[^ :]+:/ {
        split($0, part, ":"); count = part[1]; gsub(/[ *]/, "", count); line = part[2] + 0
        if (count == "-" || line == 0) { next }
        runs[file, line] += count ~ /^[0-9]/ ? count : 0
    }
    END {
        for (key in runs) {
            split(key, part, SUBSEP); n[part[1]]++; hit[part[1]] += runs[key] > 0
        }
        for (key in branch) {
            split(key, part, SUBSEP); bn[part[1]]++; bhit[part[1]] += branch[key] > 0
        }
        for (file in n) { print file, n[file], hit[file], bn[file] + 0, bhit[file] + 0 }
    }' "$work/gcov" | sort >"$work/files"

printf '%-10s %7s %8s %8s %8s\n' folder lines run branches taken
awk '{
        split($1, part, "/"); d = part[1]
        n[d] += $2; hit[d] += $3; bn[d] += $4; bhit[d] += $5
        n["~all"] += $2; hit["~all"] += $3; bn["~all"] += $4; bhit["~all"] += $5
    }
    END {
        for (d in n) {
            printf "%-10s %7d %6.1f %% %8d %6.1f %%\n", d, n[d], 100 * hit[d] / n[d], bn[d],
                bn[d] ? 100 * bhit[d] / bn[d] : 100
        }
    }' "$work/files" | LC_ALL=C sort | sed 's/^~all/all /' | tee "$work/table"
awk '{ printf "%6.1f %% of %5d lines, %5d not run: %s\n", 100 * $3 / $2, $2, $2 - $3, $1 }' "$work/files" |
    sort -n >"$folder/coverage.txt"
echo "by file: $folder/coverage.txt"
awk -v least="$least" '$1 == "all" { exit $3 + 0 < least + 0 }' "$work/table" ||
    { echo "coverage: fewer than $least % of the lines"; exit 1; }
