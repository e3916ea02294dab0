"""Algorithm 1 (draw the rejected proposals) and the joint density that they make tractable."""
