"""The documentation site: ``make docs`` executes every example and writes ``results/docs``.

Nothing is fetched while it builds. Warnings are errors there, so that a broken link, a missing
docstring or an example that raises stops the build.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

import offcut

HERE = Path(__file__).parent

project = "Offcut"
author = "The Offcut developers"
copyright = author
version = release = offcut.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
nitpicky = False

# Examples run in every build, in an empty directory, and see the studies as modules.
nb_execution_mode = "force"
nb_execution_in_temp = True
# A failure is a warning with its traceback, so that one build shows all of them; -W makes it fail.
nb_execution_raise_on_error = False
nb_execution_show_tb = True
nb_execution_timeout = 600
nb_execution_cache_path = str(HERE.parent / ".cache" / "jupyter")
nb_merge_streams = True
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(HERE / "studies"), os.environ.get("PYTHONPATH")])
)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["PYTHONSTARTUP"] = str(HERE / "_startup.py")

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types in words
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "Offcut"
html_static_path = ["_static"]
html_css_files = ["offcut.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp, .go"

#: Characters that fit beside the sidebar without scrolling.
WIDTH = 86


def tidy_outputs(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Wrap long lines of outputs, and leave out where a warning's cell happened to be stored."""
    for block in doctree.findall(nodes.literal_block):
        if "output" not in block["classes"]:
            continue
        text = re.sub(
            r"^\S*ipykernel_\d+\S*:\d+: (\w+Warning: )", r"\1", block.astext(), flags=re.M
        )
        text = re.sub(r"(?<=\n)  \w[\w.]* = offcut\.\w+\(.*\n", "", text)  # the line that warned
        text = re.sub(r"(?<=\n)  offcut\.\w+\(.*\n", "", text)
        block.children = []
        block += nodes.Text("\n".join(map(wrapped, text.split("\n"))))
        block.rawsource = block.astext()


def wrapped(line: str) -> str:
    """The line, broken where it is too long; what follows is indented like a list item."""
    if len(line) <= WIDTH:
        return line
    start = len(line) - len(line.lstrip())
    indent = " " * (start + 2)
    return textwrap.fill(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def as_plain_text(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are prose: |Y| is no substitution and means_ no link."""
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = re.split(r"(``.*?``)", line)
        parts[::2] = [
            re.sub(r"(\w)_(?!\w)", r"\1\\_", re.sub(r"(?<!\\)\|", r"\|", p)) for p in parts[::2]
        ]
        lines[i] = "".join(parts)


def join_names(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """A list of parameters that goes on in the next line is one line to napoleon."""
    for i in range(len(lines) - 1, 0, -1):
        if re.fullmatch(r"(\w+, )+\w+,", lines[i - 1]):
            lines[i - 1 : i + 1] = [f"{lines[i - 1]} {lines[i]}"]


def setup(app: Sphinx) -> dict:
    """Connect the above."""
    app.connect("autodoc-process-docstring", join_names, priority=400)  # napoleon is 500
    app.connect("autodoc-process-docstring", as_plain_text, priority=600)
    app.connect("doctree-resolved", tidy_outputs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
