"""The ``offcut`` command."""

from __future__ import annotations

from typing import Annotated

import typer

from offcut import __version__
from offcut.app.cli import fit
from offcut.app.cli.compare import EPILOG as COMPARE_EPILOG
from offcut.app.cli.compare import compare
from offcut.app.cli.console import EXIT_CODES, out
from offcut.app.cli.reproduce import EPILOG as REPRODUCE_EPILOG
from offcut.app.cli.reproduce import reproduce

EPILOG = f"""[bold]Examples[/bold]

  [cyan]offcut fit mixture sample.fcs --columns CD4,CD8 --transform asinh:150 -o sample[/cyan]

  [cyan]offcut fit density voices.csv --columns shimmer --group status[/cyan]

  [cyan]offcut fit langevin orbits.npy --seed 1[/cyan]

  [cyan]offcut compare density voices.csv --columns shimmer[/cyan]

  [cyan]offcut reproduce all --quick[/cyan]

{EXIT_CODES}

`offcut --install-completion` lets your shell complete commands, options and files.
OFFCUT_TRACEBACK=1 shows where an error came from."""
app = typer.Typer(
    name="offcut",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    help="Exact Bayesian inference for data that went through a filter.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.add_typer(fit.app, name="fit")


app.command(epilog=COMPARE_EPILOG)(compare)


app.command(epilog=REPRODUCE_EPILOG)(reproduce)


def _version(asked: bool) -> None:
    if asked:
        out().print(f"offcut {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Exact Bayesian inference for data that went through a filter."""


def main() -> None:
    """Run the command line."""
    app()
