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
# From https://github.com/rhysd/actionlint; continuous integration installs it, and it is on no Python index as itself.
if command -v actionlint >/dev/null; then actionlint .github/workflows/*.yml docs/workflows/*.yml; fi
echo "lint: clean"
