"""What a user sees of the package: public names, and no module in the way of one."""

import importlib
import inspect
import pkgutil

import pytest

import offcut

PUBLIC = ["", "plots", "regions", "cytometry", "estimators", "datasets", "errors"]


def module(name):
    return importlib.import_module(f"offcut.{name}" if name else "offcut")


def modules():
    """Names of all modules, those that would run a command left alone."""
    return [
        found.name
        for found in pkgutil.walk_packages(offcut.__path__, "offcut.")
        if not found.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_lists_public_names_only(name):
    public = module(name)
    for inner in modules():  # imported, they are attributes of their package
        if inner.rpartition(".")[0] == public.__name__:
            importlib.import_module(inner)
    assert set(dir(public)) - {"__version__"} == set(public.__all__)
    for each in public.__all__:
        assert not each.startswith("_")
        assert getattr(public, each) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_no_module_hides_a_public_name(name):
    """A module that is imported becomes an attribute of its package, whatever was there."""
    public = module(name)
    inside = {inner.rpartition(".")[2] for inner in modules() if inner.startswith(public.__name__)}
    functions = {each for each in public.__all__ if not inspect.ismodule(getattr(public, each))}
    assert not functions & inside
