"""What XLA made of a block of sweeps: loops, instructions in their bodies, leaves they carry.

XLA's runtime on a CPU pays for every instruction in a loop's body and for every array that the loop
carries (jax issues 36799 and 40150), and its compiler for every instruction at all. Counted in the
optimised program that the driver runs: instructions that are executed (a fusion is one; parameters,
constants, tuples and bitcasts are none), those of all branches, without and with the loops inside.
A loop is named by the function that wrote it; an indented one is inside the one above. So
``_block_function.run`` is a sweep, ``integrate`` (``dynamic_…`` for NUTS, ``static_…`` for HMC) a
leapfrog step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.cases import CASES, Case, Targets
from benchmarks.truncation import doubly_truncated, our_model

CONJUGATE = Case(
    "conjugate", "normal in an interval, Conjugate", 500, 480,
    lambda n: {"data": doubly_truncated(n)}, our_model, Targets(7, 2),
)  # fmt: skip
SHOWN = ("heights", "regression", "frames", "fastest", "density", "latent", "window")

#: What is executed at no cost, or not at all.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
_INSTRUCTION = re.compile(r"^  (?:ROOT )?%\S+ = (\(.*?\)|\S+) ([a-z][\w-]*)\(")
_CALLED = re.compile(r"\b(?:to_apply|true_computation|false_computation)=%([^\s,}]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_LOOP = re.compile(r"\bcondition=%([^\s,]+), body=%([^\s,]+)")
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")


class Loop(NamedTuple):
    """A while loop: who wrote it, how deep it is, and what one round of it costs."""

    name: str
    depth: int
    instructions: int
    with_loops: int
    leaves: int


class Text:
    """An optimised program, as XLA prints it."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[str]] = {}
        self.entry, inside = "", None
        for line in text.splitlines():
            if line.endswith("{") and line.startswith(("%", "ENTRY ")):
                inside = line.removeprefix("ENTRY ").split()[0].removeprefix("%")
                self.computations[inside] = []
                if line.startswith("ENTRY "):
                    self.entry = inside
            elif inside is not None and _INSTRUCTION.match(line):
                self.computations[inside].append(line)
        functions = dict(re.findall(r'^(\d+) "(.*)"$', _section(text, "FunctionNames"), re.M))
        places = re.findall(
            r"^(\d+) .*function_name_id=(\d+)", _section(text, "FileLocations"), re.M
        )
        frames = re.findall(r"^(\d+) .*file_location_id=(\d+)", _section(text, "StackFrames"), re.M)
        place = dict(places)
        self.writers = {frame: functions.get(place.get(at, ""), "?") for frame, at in frames}

    @property
    def instructions(self) -> int:
        """All that XLA has to compile, inside of fusions too."""
        return sum(len(lines) for lines in self.computations.values())

    def loops(self) -> list[Loop]:
        """All loops, each before those inside it."""
        return list(self._loops(self.entry, 0))

    def _loops(self, computation: str, depth: int) -> Iterator[Loop]:
        for line in self._executed(computation):
            if _kind(line) != "while":
                continue
            condition, body = _LOOP.search(line).groups()
            own = sum(1 for part in (condition, body) for _ in self._executed(part))
            inside = [loop for part in (condition, body) for loop in self._loops(part, depth + 1)]
            nested = sum(loop.with_loops for loop in inside if loop.depth == depth + 1)
            frame = _FRAME.search(line)
            name = self.writers.get(frame.group(1), "?") if frame else "?"
            yield Loop(name, depth, own, own + nested, _leaves(line))
            yield from inside

    def _executed(self, computation: str) -> Iterator[str]:
        """Its instructions and those of branches and calls, but not of loops."""
        for line in self.computations[computation]:
            kind = _kind(line)
            if kind in FREE:
                continue
            yield line
            if kind in ("call", "conditional"):
                called = _CALLED.findall(line)
                for branches in _BRANCHES.findall(line):
                    called += [name.strip().removeprefix("%") for name in branches.split(",")]
                for name in called:
                    yield from self._executed(name)


def _section(text: str, name: str) -> str:
    _, _, rest = text.partition(f"\n{name}\n")
    return rest.partition("\n\n")[0]


def _kind(line: str) -> str:
    return _INSTRUCTION.match(line).group(2)


def _leaves(line: str) -> int:
    """Arrays in the tuple that a loop carries."""
    shape = _INSTRUCTION.match(line).group(1)
    return len(re.findall(r"[a-z]\w*\[[\d,]*\]", shape))


def block_of(case: Case) -> Text:
    """The block of sweeps that a call of ``sample`` runs, with the largest buffer that it had."""
    from offcut.programs.cache import CACHE, blocks_of

    CACHE.clear()
    case.sample(case.data(case.n), draws=2, warmup=2, chains=1)
    samplers = [CACHE.get(key) for key in CACHE]
    blocks = [b for s in samplers if "_blocks" in vars(s) for b in blocks_of(s).values()]
    (block,) = blocks
    return Text(list(block._programs.values())[-1].as_text())


def main() -> None:
    """One table for each model."""
    os.environ["OFFCUT_CACHE"] = "off"
    print("\nLoops of a block of sweeps: instructions in a round, and arrays that are carried.")
    print("_block_function.run is a sweep, ..._integration.integrate a leapfrog step.\n")
    print(f"{'':58} instructions   with loops   carried")
    print(f"{'':58} of its own     inside        leaves")
    cases = {"conjugate": CONJUGATE, **{name: CASES[name] for name in SHOWN}}
    for case in cases.values():
        program = block_of(case)
        print(f"{case.words} (n = {case.n:,}): {program.instructions:,} instructions in all")
        for loop in program.loops():
            name = "  " * (loop.depth + 1) + loop.name.replace(".<locals>", "")
            print(
                f"{name[:58]:58} {loop.instructions:9,} {loop.with_loops:14,} {loop.leaves:9,}",
                flush=True,
            )
