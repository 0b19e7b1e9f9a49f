"""Which results of stages, and which batches, a what-if may return again: those whose copies are the same for the program."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from headspace._caching.kept_results import copy_kept, copy_to_keep

Pair = namedtuple("Pair", "image label")


class OwnArray(np.ndarray):  # type: ignore[type-arg]
    pass


class OwnTuple(tuple):  # type: ignore[type-arg]
    pass


def with_attribute(result: Any) -> Any:
    result.lengths = [1]
    return result


ARRAY = np.arange(8.0)


@pytest.mark.parametrize(
    "result",
    [
        ARRAY,
        3,
        "text",
        (ARRAY, ARRAY),
        (ARRAY[:4], ARRAY[4:]),
        ARRAY.reshape(2, 4).T,
        np.float32(3),
        Pair(ARRAY, 1),
        OwnTuple((ARRAY, 1)),
        {"image": [ARRAY], "label": 1},
    ],
)
def test_data_is_kept(result: Any) -> None:
    kept = copy_to_keep(result)

    assert kept is not None
    assert repr(copy_kept(kept[0])) == repr(result)


@pytest.mark.parametrize(
    "result",
    [
        None,
        object(),
        iter([1]),
        ARRAY.view(OwnArray),
        with_attribute(OwnTuple((ARRAY, 1))),
        {"buffer": ARRAY, "view": ARRAY[:4]},
        (ARRAY, ARRAY[::-1]),
        np.array([object()]),
    ],
)
def test_what_a_copy_would_change_is_not_kept(result: Any) -> None:
    assert copy_to_keep(result) is None


def test_tensors_with_attributes_types_or_memory_of_their_own_are_not_kept() -> None:
    torch = pytest.importorskip("torch")

    class OwnTensor(torch.Tensor):
        pass

    tensor = torch.arange(8.0)
    assert copy_to_keep((tensor, tensor)) is not None
    assert copy_to_keep((tensor[:4], tensor[4:])) is not None
    assert copy_to_keep((tensor, tensor[:4])) is None
    assert copy_to_keep(tensor.as_subclass(OwnTensor)) is None
    assert copy_to_keep({"tokens": with_attribute(tensor.clone())}) is None
    assert copy_to_keep(tensor.clone().requires_grad_()) is None
