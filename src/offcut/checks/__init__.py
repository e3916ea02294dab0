"""What is looked at before a run, beside it and after it."""
