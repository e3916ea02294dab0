"""What the tests of the command line share."""

from __future__ import annotations

import re
from typing import Any

from typer.testing import CliRunner

from offcut.app.cli.app import app

#: Short runs of one chain; length-scale and variance fixed, and nothing to reject: little compiles.
TINY = ["--draws", "24", "--warmup", "20", "--chains", "1"]
CURVE = ["--length-scale", "2", "--variance", "1", "--method", "collapsed", *TINY]


def run(*words: Any) -> Any:
    """``offcut`` with these words, in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def told(result: Any) -> str:
    """What it wrote to stderr as running text, without the frames of panels."""
    return re.sub(r"[│╭╮╰╯─\s]+", " ", result.stderr).strip()


def refused(result: Any, *words: str, code: int = 2) -> str:
    """See that it was refused with these words, and without a traceback."""
    text = told(result)
    assert result.exit_code == code, (result.exit_code, text, result.stdout)
    assert "Traceback" not in text
    missing = [word for word in words if word not in text]
    assert not missing, (missing, text)
    return text
