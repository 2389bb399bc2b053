"""One module a gate: evidence in, verdict out."""
