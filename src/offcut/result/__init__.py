"""The result: ArviZ's DataTree, its summary in words, and what it says about trust."""
