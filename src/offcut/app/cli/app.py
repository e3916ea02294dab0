"""The ``offcut`` command."""

from __future__ import annotations

from typing import Annotated

import typer

from offcut import __version__
from offcut.app.cli import cache, compare, fit, reproduce
from offcut.app.cli.console import examples, out

EPILOG = f"""{
    examples(
        "offcut fit mixture sample.fcs --columns CD4,CD8 --transform asinh:150 -o sample",
        "offcut fit density voices.csv --columns shimmer --group status",
        "offcut fit langevin orbits.npy --seed 1",
        "offcut compare density voices.csv --columns shimmer",
        "offcut reproduce all --quick",
    )
}

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
app.command(epilog=compare.EPILOG)(compare.compare)
app.command(epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command(epilog=cache.EPILOG)(cache.cache)


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
