"""One technique a file: when it applies, what it gains, how it rewrites."""
