"""What people see: results on stdout, progress and errors on stderr, no tracebacks."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

DONE, FAILED, UNUSABLE, DOUBTFUL, INTERRUPTED = 0, 1, 2, 3, 130
TRACEBACK = "OFFCUT_TRACEBACK"
EXIT_CODES = (
    "[bold]Exit codes[/bold]: 0 done; 1 the run failed; 2 wrong command line or unusable file; "
    "3 done but doubtful (with --strict); 130 interrupted."
)
#: Typer shows these itself. They are Click's, which some versions of Typer carry inside.
WRONG_USAGE: type[BaseException] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if issubclass(kind, BaseException) and kind.__name__ == "ClickException"
)
Given = ParamSpec("Given")


def examples(*commands: str) -> str:
    """The end of a command's help: examples and exit codes."""
    shown = "".join(f"  [cyan]{command}[/cyan]\n\n" for command in commands)
    return (f"[bold]Examples[/bold]\n\n{shown}" if shown else "") + EXIT_CODES


def out() -> Console:
    """For results. Made when used, because tests and pipes change the stream."""
    return Console(highlight=False, emoji=False)


def err() -> Console:
    """For progress, doubts and errors."""
    return Console(stderr=True, highlight=False, emoji=False)


def safe(text: object) -> str:
    """Text for a terminal, whatever names from files are in it: no escapes, no markup of Rich."""
    from offcut.numerics.text import visible

    return escape(visible(text, lines=True))


def marked(text: str) -> str:
    """The markup of pages as Rich's: bold is bold, all else is text."""
    from offcut.app.html.markup import plain_span, spans

    return "".join(
        f"[bold]{safe(plain_span(span))}[/bold]" if span.kind == "bold" else safe(plain_span(span))
        for span in spans(text)
    )


def show_doubt(text: str) -> None:
    """A reason for doubt, as a line in colour."""
    err().print(f"[yellow]![/yellow] {safe(text)}")


def show_error(text: str, title: str = "Error") -> None:
    """A panel like those of wrong options."""
    err().print(Panel(safe(text), title=title, title_align="left", border_style="red"))


def reported(command: Callable[Given, None]) -> Callable[Given, None]:
    """Turn errors into a message and an exit code."""

    @wraps(command)
    def guarded(*arguments: Given.args, **named: Given.kwargs) -> None:
        try:
            command(*arguments, **named)
        except (typer.Exit, typer.Abort, WRONG_USAGE):
            raise
        except KeyboardInterrupt:
            show_error("interrupted", "Interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            text, code = explained(error)
            show_error(text)
            raise typer.Exit(code) from None

    return guarded


def explained(error: Exception) -> tuple[str, int]:
    """A message for a person, and the exit code."""
    from offcut.errors import DataError, ModelError, OffcutError, SettingsError

    if isinstance(error, OffcutError):
        unusable = isinstance(error, DataError | SettingsError | ModelError)
        return str(error), UNUSABLE if unusable else FAILED
    if isinstance(error, ImportError):
        return str(error), FAILED
    if isinstance(error, OSError):
        from offcut.files import advice

        return f"{error}: {advice(error)}", FAILED
    if isinstance(error, MemoryError):
        return "out of memory: fewer draws or chains, or --thin, need less", FAILED
    return (
        f"unexpected: {type(error).__name__}: {error}\nThis is a bug in offcut. {TRACEBACK}=1 "
        "before the command shows where; please report it with that.",
        FAILED,
    )
