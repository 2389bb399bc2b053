"""Jails and the worker processes that alone execute user and candidate code."""
