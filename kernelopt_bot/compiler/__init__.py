"""Inductor: the program, canonical hashes, stitching and the artifact."""
