"""Compares the logits of two models, such as one model on two backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._model import Model


@dataclass(frozen=True)
class Difference:
    """How far the logits of ``actual`` are from those of ``baseline``, over all positions."""

    tokens: int  #: positions compared
    max_abs: float  #: the largest difference of a logit
    mean_kl: float  #: of the baseline's probabilities from the actual ones, nats, mean over positions
    max_kl: float
    top1: float  #: part of the positions whose most likely token is the same
    first_different: int | None  #: the first position whose most likely token differs


def _rows(model: Model, ids: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    for _, part in model.logits_parts(ids):
        yield from part


def _log_softmax(row: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = row - row.max()
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


def diff(actual: Model, baseline: Model, prompt: str | Sequence[int]) -> Difference:
    """Compares two models on the tokens of ``prompt`` (a text gets BOS in front) by their logits.
    The command ``rullama diff`` compares intermediate values as well. Blocks; raises as
    ``Model.logits()``, and ``ValueError`` if the vocabularies differ."""
    if actual.info.vocabulary != baseline.info.vocabulary:
        raise ValueError(
            f"the vocabularies have {actual.info.vocabulary} and {baseline.info.vocabulary} tokens"
        )
    ids = baseline.tokenize(prompt, add_bos=True) if isinstance(prompt, str) else prompt
    max_abs, kls, first_different, same = 0.0, [], None, 0
    rows = zip(_rows(actual, ids), _rows(baseline, ids), strict=True)
    for position, (one32, other32) in enumerate(rows):
        one, other = one32.astype(np.float64), other32.astype(np.float64)
        differing = one != other  # equal infinities have no difference
        if differing.any():
            max_abs = max(max_abs, float(np.abs(one[differing] - other[differing]).max()))
        p, q = _log_softmax(other), _log_softmax(one)
        possible = np.isfinite(p)
        kls.append(float((np.exp(p[possible]) * (p[possible] - q[possible])).sum()))
        if one.argmax() == other.argmax():
            same += 1
        elif first_different is None:
            first_different = position
    return Difference(
        tokens=len(kls),
        max_abs=max_abs,
        mean_kl=sum(kls) / len(kls),
        max_kl=max(kls),
        top1=same / len(kls),
        first_different=first_different,
    )
