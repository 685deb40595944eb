#!/usr/bin/env bash
# mutants.sh - does the crash suite see what it should? Edits of one line, each of which breaks a
# promise, are made in a copy of the tree, one at a time; the suite must turn red each time.
#
#   tools/mutants.sh           all of them
#   tools/mutants.sh quick     three, for CI
#   tools/mutants.sh NAME...   these; tools/mutants.sh list names them
#
# Works in build/mutants; needs what the build needs, and no root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tree=$PWD/build/mutants/tree
build=$PWD/build/mutants/build
jobs=$(nproc)

# NAME | FILE | sed expression | test program | what is broken
mutants() {
    cat <<'END'
segment-sync|src/segment/sync.c|s/own->result = io->ops->sync(io, own->file->fd);/own->result = 0;/|cuts|pages and records are not synced
index-sync|src/index/vfs.c|s/rc = io->ops->sync(io, file->fd);/rc = 0;/|cuts|the index is not synced
order|src/store/commit.c|s/^        submit_sync(commit);$/        submit_index(commit);/|cuts|the index comes before the sync of what it names
file-name|src/segment/grow.c|s/io->ops->sync_directory(io, set->directory), "sync the directory of"/0, "sync the directory of"/|cuts|a new segment file's name is not synced
failed-sync|src/store/commit.c|s/if (request->status != KVARVE_OK) {/if (request->status != KVARVE_OK \&\& request->parts != NULL) {/|faults|a failed sync is passed over
early-durable|src/store/commit.c|s/if (transaction->status == KVARVE_OK) {/if (transaction->status != KVARVE_CORRUPT) {/|faults|a put counts as durable although its transaction failed
early-free|src/store/batches.c|s/^    if (!was_recorded) {$/    if (true) {/|cuts|space is given back before the transaction that freed it
digest|src/transfer/transfer.c|s/return page_digest_is_equal(&arrived, expected);/return page_digest_is_equal(\&arrived, \&arrived);/|damage|bytes are handed out unchecked
tombstones|src/store/load.c|s/k < from->carried_count/k < from->carried_count * 0/|cuts|a rebuild passes over recorded drops
rebuild-mark|src/store/recover.c|s/status = rebuild_mark_set(store, err);/status = KVARVE_OK;/|cuts|a rebuild that is cut short leaves no mark
padding|src/index/vfs.c|s/rc = end < INDEX_LOG_HEADER_BYTES + 2 \* INDEX_FRAME_BYTES ? 0 : is_padding(file, end);/rc = is_padding(file, end) < 0 ? 0 : 1;/|cuts|the log goes on in the last commit's sector
epoch|src/store/commit.c|s/documents->result = epoch_keep(commit->store);/documents->result = 0;/|faults|a life's number is not kept
log-revert|src/index/vfs.c|s/rc = io->ops->truncate(io, vfs->log_fd, vfs->log_lowest_write);/rc = 0;/|faults|a refused transaction stays in the log
lost-index|src/store/recover.c|s/segments.file_count > 0/segments.file_count > UINT64_MAX - 1/|damage|a lost index is made anew in silence
open-sync|src/index/vfs.c|s/rc = io->ops->sync(io, vfs->log_fd);$/rc = 0;/|faults|what a killed process left is believed unsynced
header|src/store/recover.c|s/return status == KVARVE_NO_MEMORY ? status : KVARVE_OK;/return KVARVE_OK;/|limits|a rebuild without memory leaves records out
END
}

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
    quick) chosen=" segment-sync digest tombstones " ;;
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
