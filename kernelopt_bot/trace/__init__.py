"""What happened in a run, from its folder: candidates, gates, exchanges with brains, costs."""
