"""The code in README and CONTRIBUTING runs as printed; the documentation names and links right.

The examples of the documentation are executed by ``make docs``, not here; that none of them is left
out there, is tested here.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest

import offcut
from offcut.models.rejection import RejectionModel

mpl.use("Agg")

ROOT = Path(__file__).parents[1]


def run_blocks(name, monkeypatch, **settings):
    """Run the Python blocks of a document in one namespace, with short chains."""
    sample = offcut.sample
    short = {"draws": 60, "warmup": 60, "chains": 2, "progress": False}

    def briefly(model, *args, **asked):
        own = settings if isinstance(model, RejectionModel) else {"thin": 1}
        return sample(model, *args, **asked | short | own)

    monkeypatch.setattr(offcut, "sample", briefly)
    namespace = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.S | re.M)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    return namespace


@pytest.mark.documentation
def test_readme_runs_as_printed(monkeypatch):
    names = run_blocks("README.md", monkeypatch, kernel=offcut.HMC(num_steps=3))
    assert set(names["posterior"]["posterior"].data_vars) == {"mean", "sd"}
    assert set(names["trend"]["posterior"].data_vars) == {"intercept", "slope", "sd"}
    assert names["labels"].labels.shape == (6809,)
    assert names["detected"]["distance"].shape == (200,)
    assert float(names["lifetime"]["posterior"]["lifetime"].mean()) == pytest.approx(1.0, abs=0.6)


@pytest.mark.documentation
def test_the_sampler_and_the_kernel_in_contributing_run_as_printed(monkeypatch, capsys):
    names = run_blocks("CONTRIBUTING.md", monkeypatch)
    assert names["posterior"].attrs["kernel"] == "Gibbs"
    assert "draws no rejections" in capsys.readouterr().out
    assert names["moved"].attrs["kernel_kind"] == "MALA"
    assert bool(names["moved"]["sample_stats"]["accepted"].any())


PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCE = (ROOT / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("name", offcut.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"^\.\. auto\w+:: offcut\.{name}$", REFERENCE, re.M)


@pytest.mark.parametrize("module", ["regions", "plots", "estimators"])
def test_every_name_of_a_module_is_in_the_reference(module):
    section = REFERENCE.split(f".. automodule:: offcut.{module}\n")[1].split("\n## ")[0]
    found = set(re.findall(r"^\.\. auto\w+:: (\w+)$", section, re.M))
    public = getattr(offcut, module)
    names = {n for n in public.__all__ if callable(getattr(public, n))}
    assert found == names


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    for script in re.findall(r"docs/studies/\w+\.\w+", page.read_text()):
        assert (ROOT / script).exists(), script


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    listed = set(re.findall(r"^([\w/]+)$", index, re.M))
    pages = {str(p.relative_to(ROOT / "docs").with_suffix("")) for p in PAGES} - {"index"}
    assert pages <= listed


#: Fences that hold no code of Python: shell commands, lists of pages, what is included.
OTHER_FENCES = ("sh", "text", "{toctree}", "{eval-rst}", "{include}", "{literalinclude}")


def fences(text):
    """What stands behind each fence that opens a block, and the block."""
    return re.findall(r"^(?:```+|~~~+|:::+)([^\n]*)\n(.*?)^(?:```+|~~~+|:::+)$", text, re.S | re.M)


def unexecuted(text):
    """First lines of the blocks of Python that ``make docs`` would only print."""
    notebook = re.match(r"---\n.*?file_format: mystnb\n.*?---\n", text, re.S)
    for kind, block in fences(text):
        words = kind.split() or [""]
        skipped = re.search(r"skip-execution|remove-cell", block) or not notebook
        if words[0] not in OTHER_FENCES and (words[0] != "{code-cell}" or skipped):
            yield f"{kind}: {block.splitlines()[0] if block else ''}"
    yield from re.findall(r"^>>> .*$", text, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_block_of_python_is_executed(page):
    """A cell of a page that is a notebook is; everything else is only printed."""
    assert list(unexecuted(page.read_text())) == []


def test_blocks_that_are_only_printed_are_found():
    head = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n"
    cell = "```{code-cell} python\nx = 1\n```\n"
    assert list(unexecuted(head + cell)) == []
    for wrong in (
        cell,
        head + "```python\nx = 1\n```\n",
        head + "```\nx = 1\n```\n",
        head + "```{code-cell} python\n:tags: [skip-execution]\nx = 1\n```\n",
        head + ">>> x = 1\n",
    ):
        assert len(list(unexecuted(wrong))) == 1


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_blocks_of_files_outside_the_documentation_are_python_or_shell(name):
    """Those of Python are run by the tests above."""
    kinds = {kind for kind, _ in fences((ROOT / name).read_text())}
    assert kinds <= {"python", "sh", "text"}
