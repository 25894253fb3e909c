#!/usr/bin/env bash
# The exactness test with 50 prompts instead of 12, against the binaries of build/.
set -euo pipefail
cd "$(dirname "$0")/../.."
MILLRACE_BUILD_DIR=${MILLRACE_BUILD_DIR:-$PWD/build} MILLRACE_EXACTNESS_PROMPTS=50 exec python3 tests/cluster/exactness_test.py
