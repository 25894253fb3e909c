#!/usr/bin/env bash
# Configures (once) and builds with progress.
#
#   deploy/build.sh PRESET FOLDER [TARGET...]      a preset of CMakePresets.json, its folder, default: all targets
#
# The whole output is in FOLDER/build.log; its errors are printed when it fails.
set -euo pipefail

cd "$(dirname "$0")/.."
preset=$1 folder=$2
shift 2
mkdir -p "$folder"
log=$folder/build.log
: >"$log"

fail() {
  grep -E -A 5 'error|FAILED|CMake Error' "$log" | tail -n 60 >&2 || true
  echo "build: failed; all of its output is in $log" >&2
  exit 1
}

if [ ! -f "$folder/build.ninja" ]; then
  echo "configuring ($preset)" >&2
  cmake --preset "$preset" >>"$log" 2>&1 || fail
fi

# A compiler may need 1 GB.
cores=$(nproc)
memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$((memory_jobs < cores ? memory_jobs : cores))
[ "$jobs" -ge 1 ] || jobs=1

targets=()
[ $# -eq 0 ] || targets=(--target "$@")
terminal=0
[ ! -t 2 ] || terminal=1
export NINJA_STATUS='[%f/%t] '
# Ninja writes one line an object into a pipe; a terminal shows the newest, a file every tenth part.
show_progress() {
  local line done total part=0 shown=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} shown=1
    if [ $terminal = 1 ]; then
      printf '\r\033[Kbuilding %d of %d' "$done" "$total" >&2
    elif [ "$total" -ge 10 ] && [ $((10 * done / total)) -gt $part ]; then
      part=$((10 * done / total))
      echo "building $done of $total" >&2
    fi
  done
  [ $terminal = 0 ] || [ $shown = 0 ] || echo >&2
}
set +e
cmake --build "$folder" -j "$jobs" "${targets[@]}" 2>&1 | tee -a "$log" | show_progress
status=${PIPESTATUS[0]}
set -e
[ "$status" = 0 ] || fail
