#!/usr/bin/env bash
# mutants.sh - does the crash suite see what it should? Edits of one line, each of which breaks a
# promise, are made in a copy of the tree, one at a time; the suite must turn red each time.
#
#   tools/mutants.sh           all of them
#   tools/mutants.sh quick     five that turn red soon: .ci/run mutants
#   tools/mutants.sh NAME...   these; tools/mutants.sh list names them
#
# Works in build/mutants; needs what the build needs, and no root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tree=$PWD/build/mutants/tree
build=$PWD/build/mutants/build
jobs=$(nproc)

# Rows NAME|FILE|sed expression|test program|what is broken
mutants() { grep -v '^#' tools/mutants.txt; }

prepare() {
    mkdir -p "$tree"
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - -f - |
        tar -x -C "$tree" -f -
    cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$build.log" 2>&1
    compile cuts faults damage limits
}

# compile PROGRAM...
compile() {
    cmake --build "$build" -j "$jobs" --target "${@/#/test_crash_store_}" >>"$build.log" 2>&1 ||
        { tail -40 "$build.log"; echo "mutants: the build failed"; exit 1; }
}

# is_green PROGRAM
is_green() {
    KVARVE_CRASH_FIRST=1 timeout 900 "$build/tests/crash/test_crash_store_$1" \
        >"$build/mutant.out" 2>&1
}

# try NAME FILE EDIT PROGRAM WHAT: 0 when the suite turned red
try() {
    local file=$tree/$2 red=0
    cp "$file" "$build/original"
    sed -i "$3" "$file"
    if cmp -s "$file" "$build/original"; then
        printf '%-14s NOT APPLIED: %s has no such line any more\n' "$1" "$2"
        return 1
    fi
    compile "$4"
    if is_green "$4"; then
        red=1
        printf '%-14s SURVIVED: %s\n' "$1" "$5"
    else
        printf '%-14s red in %s: %s\n' "$1" "$4" "$5"
    fi
    cp "$build/original" "$file"
    return $red
}

main() {
    local chosen red=0 count=0 name file edit program what
    chosen=" $* "
    case "${1:-all}" in
    list) mutants | awk -F'|' '{ printf "%-14s %-6s %s\n", $1, $4, $5 }'; return ;;
    quick) chosen=" segment-sync order digest failed-sync lost-place " ;;
    all) chosen="" ;;
    esac
    mkdir -p "$build"
    prepare
    while IFS='|' read -r name file edit program what; do
        if [ -n "$chosen" ] && [[ $chosen != *" $name "* ]]; then
            continue
        fi
        count=$((count + 1))
        if try "$name" "$file" "$edit" "$program" "$what" </dev/null; then
            red=$((red + 1))
        fi
    done < <(mutants)
    echo "mutants: $red of $count went red"
    [ "$red" -eq "$count" ] && [ "$count" -gt 0 ]
}

main "$@"
