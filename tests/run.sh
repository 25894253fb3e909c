#!/usr/bin/env bash
# Installs what the tests need, builds, and runs everything through ctest.
#
#   tests/run.sh [ctest arguments]      e.g. tests/run.sh -L unit
#
# MILLRACE_PRESET=ci makes warnings errors. MILLRACE_SKIP_PACKAGES=1 leaves packages alone. Without a network it runs
# with what is installed; tests of the official OpenAI client and of the format are then skipped unless their packages
# were installed before.
set -euo pipefail

cd "$(dirname "$0")/.."
preset=${MILLRACE_PRESET:-release}

[ "${MILLRACE_SKIP_PACKAGES-}" = 1 ] || deploy/install-packages.sh
# The preset of an earlier build must not differ.
if [ -f build/CMakeCache.txt ]; then
  wanted=OFF
  [ "$preset" != ci ] || wanted=ON
  grep -q "^MILLRACE_WERROR:[A-Z]*=$wanted" build/CMakeCache.txt || cmake --preset "$preset" -DMILLRACE_WERROR=$wanted >/dev/null
fi
deploy/build.sh "$preset" build

venv=build/venv
if [ ! -e $venv/.complete ]; then
  if python3 -m venv $venv >/dev/null 2>&1 &&
    $venv/bin/pip install --disable-pip-version-check -q --retries 1 --timeout 20 -r tests/requirements.txt >$venv/pip.log 2>&1; then
    touch $venv/.complete
  else
    echo "tests: no Python packages ($venv/pip.log); the tests that need them are skipped" >&2
  fi
fi
MILLRACE_TEST_MODEL=$(deploy/fetch-model.sh) || MILLRACE_TEST_MODEL=
export MILLRACE_TEST_MODEL

exec ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
