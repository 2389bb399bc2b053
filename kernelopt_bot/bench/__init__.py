"""Benchmarks of the product itself: sets of problems, each through the whole of it in a process of its own."""
