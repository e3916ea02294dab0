"""The contracts: hooks of models are called in their order, and statuses do what they say."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import offcut
from offcut.base import FULL, OK, Doubt, Info, Model, Prepared, Request, Sampler
from offcut.errors import MemoryLimitError, ModelError, TrustWarning

RUN = {"draws": 4, "warmup": 2, "chains": 1, "progress": False}


class Counting(Sampler):
    """Counts its steps; it can hold so many rejections, and one more is asked of it."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def start(self, key: Any, data: Any, budget: int) -> Any:
        return jnp.zeros(())

    def step(self, key: Any, state: Any, stage: Any, data: Any) -> Any:
        status = OK if self.most is None else FULL
        return state + 1, Info({"rejected": jnp.int32(0)}, jnp.int32(status), None)

    def record(self, state: Any) -> dict[str, Any]:
        return {"count": state}

    def capacity(self, state: Any) -> int | None:
        return self.most

    def limit(self, state: Any) -> int:
        return super().limit(state) if self.most is None else self.most


class Plain(Model):
    """Nothing but what a model must have."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def prepare(self, request: Request) -> Prepared:
        return Prepared(Counting(self.most), jnp.zeros(1), {"x": np.asarray(request.data)})


class Talking(Plain):
    """Every hook says that it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def before(self, prepared: Prepared) -> list[Doubt]:
        self.called.append(f"before {prepared.n}")
        return [Doubt("odd", "the data are odd")]

    def facts(self, prepared: Prepared) -> dict[str, Any]:
        self.called.append("facts")
        return {"parity": "odd"}

    def after(self, posterior: Any, prepared: Prepared) -> None:
        self.called.append(f"after {posterior.attrs['parity']}")
        posterior.attrs["approximation"] = "counts are rounded"

    def identity(self) -> str:
        return "talking"


def test_a_model_needs_nothing_but_prepare() -> None:
    posterior = offcut.sample(Plain(), np.zeros(3), **RUN)
    assert posterior["posterior"]["count"].values.tolist() == [[3.0, 4.0, 5.0, 6.0]]
    assert (posterior.attrs["method"], posterior.attrs["kernel_kind"]) == ("own", "")
    assert posterior.attrs["draws_exactly"] == 0


def test_hooks_are_called_in_their_order_and_doubts_point_to_the_caller() -> None:
    model = Talking()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrustWarning)
        posterior = offcut.sample(model, np.zeros(3), **RUN)
    assert model.called == ["before 3", "facts", "after odd"]
    said = [str(one.message) for one in caught if issubclass(one.category, TrustWarning)]
    assert said[0] == "the data are odd"
    assert "Approximate: counts are rounded." in said
    assert {one.filename for one in caught} == {__file__}
    kinds = [doubt.kind for doubt in offcut.summary(posterior).doubts]
    assert kinds[0] == "approximate"


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_model_is_refused() -> None:
    class Duck:
        prepare = Plain.prepare

    with pytest.raises(ModelError, match=r"another model of this library, got Duck"):
        offcut.sample(Duck(), np.zeros(3), **RUN)  # type: ignore[arg-type]


def test_a_sampler_that_can_hold_no_more_says_so() -> None:
    with pytest.raises(
        MemoryLimitError, match=r"more than 7 rejected proposals, which is all that this sampler"
    ):
        offcut.sample(Plain(7), np.zeros(3), budget=None, **RUN)
