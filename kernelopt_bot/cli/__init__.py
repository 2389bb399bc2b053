"""Commands: one file each, calling the rooms in order."""
