"""What a user sees of the package: public names, and no module in the way of one."""

import importlib
import inspect
import pkgutil

import pytest

import offcut
from offcut.errors import ModelError

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


def documented(public):
    """Public classes and functions with their public methods and properties, by name."""
    for name in public.__all__:
        value = getattr(public, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        yield name, value
        for inner, part in vars(value).items() if inspect.isclass(value) else ():
            if not inner.startswith("_") and (inspect.isfunction(part) or hasattr(part, "fget")):
                yield f"{name}.{inner}", getattr(value, inner)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    """The linter asks for docstrings of modules, classes and functions; methods are seen to here.

    Inside the package a method may go without one where its name says all there is to say.
    """
    lacking = [
        name for name, value in documented(module(name)) if len(inspect.getdoc(value) or "") < 5
    ]
    assert not lacking


OLD_SPELLINGS = [
    ("GPDensity", {"kernel": "matern32"}, "give covariance='matern32'"),
    ("GPIntensity", {"kernel": "matern32"}, "give covariance='matern32'"),
    ("TruncatedMixture", {"prior": "window"}, "give weights='window'"),
    ("estimators.GaussianProcessDensity", {"kernel": "matern52"}, "give covariance='matern52'"),
    ("estimators.TruncatedGaussianMixture", {"prior": "latent"}, "give weights='latent'"),
]


@pytest.mark.parametrize(("name", "settings", "said"), OLD_SPELLINGS)
def test_old_spellings_are_answered_with_the_new_ones(name, settings, said):
    room, _, kind = name.rpartition(".")
    make = getattr(module(room), kind)
    with pytest.raises(ModelError, match=said):
        make(**settings)
    assert not set(settings) & set(inspect.signature(make).parameters)
