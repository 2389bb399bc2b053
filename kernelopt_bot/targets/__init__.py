"""Models and kernels found in source text; nothing of the user's is executed here."""
