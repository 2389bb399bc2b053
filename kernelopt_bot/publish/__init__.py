"""Branches, commits and pull requests."""
