"""Code that runs inside the jail: standard library, torch and triton only."""
