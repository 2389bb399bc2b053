"""Blocks and their renderers."""
