#!/bin/sh
# transport_perftest.sh [TLS]...: ucx_perftest's UCP get between two processes, 64 KiB to 8 MiB, beside transport_bench.
# Needs ucx-utils. Default: posix, sysv, tcp.
set -eu
command -v ucx_perftest >/dev/null || { echo "transport_perftest: install ucx-utils" >&2; exit 1; }
[ $# -gt 0 ] || set -- posix sysv tcp
for tls in "$@"; do
  echo "$tls: block KiB, GB/s"
  for kib in 64 256 1024 4096 8192; do
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    UCX_TLS=$tls UCX_LOG_LEVEL=error ucx_perftest -p "$port" >/dev/null 2>&1 &
    server=$!
    i=0
    until UCX_TLS=$tls UCX_LOG_LEVEL=error ucx_perftest 127.0.0.1 -p "$port" -t ucp_get -s $((kib * 1024)) -O 8 \
        -n $((1048576 / kib)) -w 50 -f 2>/dev/null >"${TMPDIR:-/tmp}/perftest.$$"; do
      i=$((i + 1)); [ $i -lt 100 ] || break
    done
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    awk -v kib=$kib '/Final:|^ *[0-9]/ { mb = $(NF-3) } END { printf "%8d %8.2f\n", kib, mb * 1048576 / 1e9 }' "${TMPDIR:-/tmp}/perftest.$$"
    rm -f "${TMPDIR:-/tmp}/perftest.$$"
  done
done
