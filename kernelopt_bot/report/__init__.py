"""`build(run)` makes a `Report` of blocks; the rest turns it into Markdown, JSON, files or terminal text."""
