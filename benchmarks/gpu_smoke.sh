#!/usr/bin/env bash
# First look at a GPU machine: what doctor says, the tests that need a GPU, one target through all levers.
# Usage: benchmarks/gpu_smoke.sh OUT [EXAMPLE...]
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
export PYTHONUNBUFFERED=1
python3 -m kernelopt_bot doctor --device cuda --json > "$out/doctor.json" 2> "$out/doctor.err"
echo "doctor: exit $?"
for example in "$@"; do
    timeout 240 python3 -m kernelopt_bot optimize "examples/$example.py" --output "/tmp/out/$example" --json \
        > "$out/$example.json" 2> "$out/$example.log"
    echo "$example: exit $?"
    tail -25 "$out/$example.log"
done
