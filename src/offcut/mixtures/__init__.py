"""Truncated Dirichlet process mixtures, and one partition that stands for their draws.

Axes have the same names in all files: K components, G groups, R rows of weights (one for all groups
or one for each) and as many ``windows``, d coordinates, f features of a point (F with the
indicators of groups behind them), m points, S draws; ``rows`` are places for events, ``cells``
components in groups, and ``labels`` K + 1, the last being that of what is not real. In tables of
partitions J counts components of all draws and C clusters.
"""
