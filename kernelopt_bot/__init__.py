"""KernelOPT bot: verified kernel optimisation for pull requests."""

__version__ = "0.1.0"
