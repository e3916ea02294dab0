"""The applications and comparisons of Rao, Lin & Dunson (2016), run again and put beside theirs.

``reproduce`` runs them and writes one page. Every number on it that is not the paper's comes from
these runs; what the paper reports stands at the head of each part's module.
"""

from __future__ import annotations

from offcut.app.reproduce.run import PARTS, reproduce

__all__ = ["PARTS", "reproduce"]
