"""Looking where a run has not been, without going there."""
