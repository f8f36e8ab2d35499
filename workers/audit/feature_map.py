"""Where a network puts rows of R, F and H: its features brought down to two coordinates, to be looked at.

Papers' figures, issue 6: "feature map (UMAP when installed, PCA otherwise)". A picture and no measurement: it
enters no verdict, and distances in a UMAP mean little beyond who is next to whom.

    {"feature_map": None |                                                None: no features, or not finite,
        {"method": "pca" | "umap",                                        or all the same
         "explained": None | [share, share],                              of the variance; None of a UMAP
         "points": {"retain" | "forget" | "holdout": [[x, y, label]]}}}   a sample of each set

Features are those before the last layer, in evaluation mode. All sets together make one map. UMAP (McInnes et
al. 2018) takes the correlation metric, as Tang & Khanna 2026 did; where there are fewer rows than a row and
its 15 neighbours, PCA is taken instead.
"""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
from sklearn.decomposition import PCA

from workers.audit.outputs import FloatArray, IntArray, Outputs, SetName, Sets

Method = Literal["pca", "umap"]

ROWS = 500  # of a set
_NEIGHBOURS = 15
_SHOWN: Final[tuple[SetName, ...]] = ("retain", "forget", "holdout")


def _if_installed(name: str) -> ModuleType | None:
    """A package that may be there, loaded when it is first used: UMAP's takes seconds."""
    spec = find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return sys.modules.get(name)
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UMAP: Final = _if_installed("umap")


def feature_map(
    sets: Sets,
    *,
    rng: np.random.Generator,
    rows: int = ROWS,
    method: Method = "pca" if UMAP is None else "umap",
) -> dict[str, Any]:
    """Two coordinates for each row of a sample of each set, in the layout above.

    Args:
        sets: one network's outputs; "retain", "forget" and "holdout" are shown, as far as they are there. A
            set may be empty, and its points are.
        rng: decides the samples, and where UMAP begins.
        rows: of a set, at most.
        method: "umap" needs umap-learn, which the extra `umap` installs.
    """
    samples = {name: _sampled(sets[name], rows, rng) for name in _SHOWN if name in sets}
    found = [part.features for part in samples.values() if part.features is not None]
    if not found or len(found) < len(samples):
        return {"feature_map": None}
    features = np.concatenate(found)
    if features.shape[1] < 2 or not np.isfinite(features).all() or not (features != features[:1]).any():
        return {"feature_map": None}
    method = method if len(features) > _NEIGHBOURS else "pca"
    places, explained = (_umap(features, rng), None) if method == "umap" else _pca(features)
    ends = np.cumsum([len(part) for part in samples.values()])[:-1]
    return {
        "feature_map": {
            "method": method,
            "explained": explained,
            "points": {
                name: _points(part, outputs.labels)
                for (name, outputs), part in zip(samples.items(), np.split(places, ends), strict=True)
            },
        }
    }


def _sampled(outputs: Outputs, most: int, rng: np.random.Generator) -> Outputs:
    if len(outputs) <= most:
        return outputs
    return outputs.take(np.sort(rng.choice(len(outputs), most, replace=False)))


def _pca(features: FloatArray) -> tuple[FloatArray, list[float]]:
    """Coordinates [n, 2] along the two directions of most variance, and the shares of it that they hold.

    A direction's sign is free; here its largest entry is positive, so that the picture is never mirrored.
    """
    pca = PCA(2, svd_solver="full")
    places: FloatArray = pca.fit_transform(features)
    largest = np.abs(pca.components_).argmax(axis=1)
    signs = np.sign(pca.components_[[0, 1], largest])
    return places * signs, pca.explained_variance_ratio_.tolist()


def _umap(features: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Coordinates [n, 2]. On one thread, so that the same seed gives the same map."""
    seed = int(rng.integers(2**31))
    reducer = UMAP.UMAP(  # type: ignore[union-attr]
        n_neighbors=_NEIGHBOURS, metric="correlation", random_state=seed, n_jobs=1
    )
    places: FloatArray = reducer.fit_transform(features).astype(np.float64)
    return places


def _points(places: FloatArray, labels: IntArray) -> list[list[float | int]]:
    """To five digits, which is more than can be seen."""
    return [
        [float(f"{x:.5g}"), float(f"{y:.5g}"), int(label)]
        for (x, y), label in zip(places, labels, strict=True)
    ]
