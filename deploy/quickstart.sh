#!/usr/bin/env bash
# From a clone to a running cluster: installs what is missing, builds, fetches the default model, starts a cluster on
# this machine, asks it one question and serves until Ctrl-C.
#
#   deploy/quickstart.sh [flags]
#
#   --once PROMPT        ask this (greedy), print the answer, stop everything and end
#   --model FILE         a GGUF file instead of the default model
#   --host ADDRESS       that the HTTP API listens on (default 127.0.0.1); other machines than this reach it on 0.0.0.0, then
#                        one of the next two is needed
#   --api-key-file FILE  API keys, one a line
#   --allow-anonymous    serve anybody
#   --port N             of the HTTP API (default 8080; any free one with --once)
#   --prefill N --decode N --store N --balancers N
#                        how many of each (default 2, 2, 1, and 2 replicas of each balancer)
#
# MILLRACE_SKIP_PACKAGES=1 leaves packages alone.
set -euo pipefail

from=$PWD
cd "$(dirname "$0")/.."
fail() { echo "quickstart: $*" >&2; exit 1; }
# A path as the caller's folder sees it.
absolute() { case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac }

once= model= host=127.0.0.1 port= up_flags=() key_file=
has_once=0
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' deploy/quickstart.sh; exit 0 ;;
    --allow-anonymous)
      up_flags+=("$1")
      shift
      continue
      ;;
    --once | --model | --host | --port | --api-key-file | --prefill | --decode | --store | --balancers) ;;
    *) fail "unknown flag '$1'; see --help" ;;
  esac
  [ $# -ge 2 ] || fail "$1 needs a value"
  case $1 in
    --once) once=$2 has_once=1 ;;
    --model) model=$(absolute "$2") ;;
    --host) host=$2 ;;
    --port) port=$2 ;;
    --api-key-file) key_file=$(absolute "$2") ;;
    *) up_flags+=("$1" "$2") ;;
  esac
  shift 2
done
[ $has_once = 0 ] || [ -n "$once" ] || fail "--once needs a prompt"
[ -z "$model" ] || [ -f "$model" ] || fail "there is no model file $model"
chat_flags=(--temperature 0) key_header=
if [ -n "$key_file" ]; then
  first_key=$(grep -m 1 '^[^#]' "$key_file") || fail "there is no API key in $key_file"
  up_flags+=(--api-key-file "$key_file") chat_flags+=(--api-key-file "$key_file")
  key_header=" -H \"Authorization: Bearer KEY\""
fi
[ -n "${HOME-}" ] || fail "HOME is not set"

# ---- can this machine do it ----------------------------------------------------------------------------------------
for feature in avx2 fma f16c; do
  grep -qw -m 1 "$feature" /proc/cpuinfo || fail "this processor lacks ${feature^^}, which the CPU engine needs"
done
memory_mb=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
[ "$memory_mb" -ge 3000 ] || fail "this machine has $memory_mb MB of memory; 3000 MB are needed"
need_space() { # FOLDER MB WHAT
  local folder=$1 free
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] || fail "$free MB are free at $folder; $3 needs $2 MB"
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace
[ -x build/bin/millrace ] || need_space build 3000 "the build"
[ -n "$model" ] || [ -s "$cache/models/smollm2-135m-instruct.gguf" ] || need_space "$cache" 500 "the default model"

# ---- what it takes ---------------------------------------------------------------------------------------------------
[ "${MILLRACE_SKIP_PACKAGES-}" = 1 ] || deploy/install-packages.sh
deploy/build.sh release build millrace millrace-gateway millrace-prefill-balancer millrace-decode-balancer \
  millrace-prefill-worker millrace-decode-worker millrace-kvcache-store
[ -n "$model" ] || model=$(deploy/fetch-model.sh)

# ---- the cluster -----------------------------------------------------------------------------------------------------
millrace=build/bin/millrace
name=default
if [ $has_once = 1 ]; then
  name=once-$$
  : "${port:=0}"
fi
: "${port:=8080}"
remove_state() {
  [ $has_once = 0 ] || rm -rf "${XDG_STATE_HOME:-$HOME/.local/state}/millrace/$name"
}
stop() {
  trap - EXIT INT TERM HUP
  "$millrace" down --name "$name" >&2 || true
  remove_state
}
stop_and_exit() {
  stop
  exit "$1"
}
trap stop EXIT
trap 'stop_and_exit 130' INT
trap 'stop_and_exit 143' TERM
trap 'stop_and_exit 129' HUP
if ! "$millrace" up --detach --name "$name" --model "$model" --host "$host" --port "$port" "${up_flags[@]}" >&2; then
  trap - EXIT
  remove_state
  exit 1
fi

if [ $has_once = 1 ]; then
  "$millrace" chat --name "$name" "${chat_flags[@]}" --max-tokens 256 --once "$once"
  exit 0 # stops the cluster
fi

question="Name the largest ocean."
endpoint=$("$millrace" status --name "$name" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["endpoint"])')
served=$(curl -fsS ${key_file:+-H @<(echo "Authorization: Bearer $first_key")} "$endpoint/v1/models" | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')
echo
echo "> $question"
"$millrace" chat --name "$name" "${chat_flags[@]}" --max-tokens 64 --once "$question"
cat <<END

curl -N $endpoint/v1/chat/completions -H 'Content-Type: application/json'$key_header -d '{
  "model": "$served", "stream": true, "temperature": 0,
  "messages": [{"role": "user", "content": "$question"}]}'

serving $served at $endpoint/v1 until Ctrl-C; beside it: $millrace chat, $millrace status
END
supervisor=$("$millrace" status --name "$name" --json |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["supervisor"]["pid"])')
tail --pid="$supervisor" -f /dev/null &
wait $! || true
echo "quickstart: the cluster ended" >&2
exit 1
