#!/usr/bin/env bash
# The composite action's step: one phase, with the inputs from the environment. Paths start at the workspace.
set -euo pipefail
kernelopt="$KERNELOPT_ACTION/.venv/bin/kernelopt"
here=$PWD
absolute() { case "$1" in /*) printf '%s' "$1" ;; *) printf '%s' "$here/$1" ;; esac; }
if [ -n "${KERNELOPT_IMAGE_INPUT:-}" ]; then export KERNELOPT_IMAGE="$KERNELOPT_IMAGE_INPUT"; fi

case "$KERNELOPT_PHASE" in
    all)
        output=$(absolute "$KERNELOPT_OUTPUT")
        cd "$KERNELOPT_DIRECTORY"
        exec "$kernelopt" run --publish "$KERNELOPT_PUBLISH" --output "$output"
        ;;
    authorise)
        exec "$kernelopt" authorise --job "$(absolute "$KERNELOPT_JOB")"
        ;;
    execute)
        job=$(absolute "$KERNELOPT_JOB") bundle=$(absolute "$KERNELOPT_BUNDLE") output=$(absolute "$KERNELOPT_OUTPUT")
        cd "$KERNELOPT_DIRECTORY"
        exec "$kernelopt" execute --job "$job" --bundle "$bundle" --output "$output"
        ;;
    publish)
        exec "$kernelopt" publish --job "$(absolute "$KERNELOPT_JOB")" --bundle "$(absolute "$KERNELOPT_BUNDLE")" \
            --execute-result "$KERNELOPT_EXECUTE_RESULT" --to "$KERNELOPT_PUBLISH" --head-sha "${KERNELOPT_HEAD_SHA:-}"
        ;;
    *)
        echo "error: the input phase is all, authorise, execute or publish" >&2
        exit 2
        ;;
esac
