#!/usr/bin/env bash
# Installs the Debian packages that lists name and this machine lacks.
#
#   deploy/install-packages.sh [LIST...]      default: deploy/apt-packages.txt
#
# A line of a list is a package or alternatives, `a | b`: the first that the release has. Asks apt only when something
# is missing; uses sudo only when not root; with neither it prints what to install and fails.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here/apt-packages.txt"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
available() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

if ! command -v dpkg-query >/dev/null; then
  echo "install-packages: this is not Debian or alike; install what these name, and run again with MILLRACE_SKIP_PACKAGES=1: $*" >&2
  exit 1
fi

missing=() # lines of the lists of which no alternative is installed
while IFS= read -r line; do
  line=${line%%#*}
  read -r -a alternatives <<<"${line//|/ }"
  [ ${#alternatives[@]} -gt 0 ] || continue
  for package in "${alternatives[@]}"; do
    if installed "$package"; then continue 2; fi
  done
  missing+=("${alternatives[*]}")
done < <(cat "$@")
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
  root=()
elif command -v sudo >/dev/null; then
  root=(sudo)
else
  echo "install-packages: these packages are missing, and this is neither root nor is there sudo. As root:" >&2
  printf '  apt-get install -y' >&2
  for line in "${missing[@]}"; do printf ' %s' "${line%% *}" >&2; done
  printf '\n' >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Runs apt-get quietly; what it said is shown when it fails.
apt() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 && return
  tail -n 20 "$log" >&2
  echo "install-packages: apt-get $1 failed" >&2
  exit 1
}

echo "asking apt for ${#missing[@]} missing packages" >&2
apt update
wanted=()
for line in "${missing[@]}"; do
  read -r -a alternatives <<<"$line"
  chosen=
  for package in "${alternatives[@]}"; do
    if available "$package"; then chosen=$package; break; fi
  done
  if [ -z "$chosen" ]; then
    echo "install-packages: this release has no package ${line// / or }" >&2
    exit 1
  fi
  wanted+=("$chosen")
done
echo "installing ${wanted[*]}" >&2
apt install -y --no-install-recommends "${wanted[@]}"
