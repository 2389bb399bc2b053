"""The parts of an artifact's `_runtime.py`: standard library and torch only, joined by `bundle.runtime_text`."""
