#!/usr/bin/env bash
# Linters over code, types, workflows, the action and the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
$bin/ruff check .
$bin/mypy
$bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
$bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
$bin/zizmor --offline --no-progress --quiet action.yml .github/workflows
$bin/hadolint Dockerfile
echo "lint: clean"
