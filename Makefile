# Everything a person needs: `make demo` runs the main job, `make test` the tests, `make lint` the linters.
.PHONY: demo test test-exhaustive lint setup setup-dev lock clean
PYTHON ?= python3
export PYTHON

setup:
	tools/setup.sh runtime

setup-dev:
	tools/setup.sh all

demo: setup
	.venv/bin/python tools/demo.py demo-out

test: setup-dev
	.venv/bin/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not serial and not exhaustive"
	.venv/bin/python -m pytest -m serial tests/end_to_end

test-exhaustive: setup-dev
	.venv/bin/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m exhaustive

lint: setup-dev
	tools/lint.sh

lock: setup-dev
	.venv/bin/python tools/lock.py

clean:
	rm -rf .venv build dist demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
