"""Where a drill's recipe and rows come from: the digits, or a model that is registered."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from sqlalchemy.orm import Session

from app.config import Settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.jobs.params import RECIPE, BuiltIn, SklearnDigits, TrainingRecipe
from app.registry import service as registry
from app.tables import Model, ModelVersion
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import assemble
from workers.audit.outputs import IntArray
from workers.data.batches import Rows
from workers.data.digits import DigitsReader
from workers.data.lazy import Loader
from workers.drill.stage import Recipe
from workers.monitor import Silent

_DIGITS: Final = TrainingRecipe(epochs=40, weight_decay=5e-3, precision="fp32")
_VALIDATION = 100  # of the digits' training rows


class NoRecipe(Exception):
    """There is nothing to drill on; the message says why."""


def digits(seed: int = 0) -> Recipe:
    """Scikit-learn's digits, as in the demo, with the labels that they have."""
    reader = DigitsReader("", SklearnDigits(mislabelled_subjects=0, seed=seed))
    (chunk,) = reader.chunks()
    images = np.concatenate([reader.decode(image) for image in chunk.images]).reshape(-1, 8, 8, 1)
    every = Rows.of(images, chunk.labels)
    is_test = np.array([split == "test" for split in chunk.splits or ()])
    others = np.flatnonzero(~is_test)

    def of(places: IntArray) -> Rows:
        return every.take(torch.from_numpy(places))

    return Recipe(
        name="digits",
        architecture=BuiltIn(name="small_cnn"),
        training=_DIGITS,
        num_classes=10,
        train=of(others[_VALIDATION:]),
        validation=of(others[:_VALIDATION]),
        test=of(np.flatnonzero(is_test)),
    )


def registered(session: Session, name: str, config: Settings, store: BlobStore) -> Recipe:
    """The recipe of a model's newest trained version, with the rows that may still train.

    Raises:
        NoRecipe: there is no such model, or none of its versions has a recipe.
        DataFault: the rows cannot be read.
    """
    version = _newest(session, name)
    dataset = datasets.get_version(session, version.dataset_version_id)
    deleted = row_sets.tombstoned(session, dataset.id)
    environment = assemble.environment(config)
    data = assemble.data_spec(session, dataset)
    load_rows = Loader.of(data, environment, store, device=torch.device("cpu"), monitor=Silent())

    def rows(wanted: RowSet) -> Rows:
        return load_rows(wanted - deleted).take(torch.arange(len(wanted - deleted)))

    return Recipe(
        name=f"{name} {version.number}",
        architecture=assemble.architecture(version.architecture, config),
        training=RECIPE.validate_python(version.recipe),
        num_classes=data.num_classes,
        train=rows(registry.rows_of(session, version)),
        validation=rows(row_sets.of_role(session, dataset, "validation")),
        test=rows(row_sets.of_role(session, dataset, "test")),
    )


def _newest(session: Session, name: str) -> ModelVersion:
    model = session.query(Model).filter_by(name=name).one_or_none()
    if model is None:
        raise NoRecipe(f"there is no model {name!r}")
    versions = session.query(ModelVersion).filter_by(model_id=model.id)
    version = versions.filter(ModelVersion.recipe.is_not(None)).order_by(ModelVersion.number.desc()).first()
    if version is None:
        raise NoRecipe(f"no version of {name!r} says how it was trained")
    return version
