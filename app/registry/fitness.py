"""Whether a data set can be learned: what the operator, the images and the recipe have against it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.config import settings
from app.datasets import service as datasets
from app.errors import Faults, Invalid
from app.jobs.params import Plugin, misfit
from app.registry.schemas import Training, VersionUpload
from app.tables import DatasetVersion


def fitting_dataset(session: Session, new: Training | VersionUpload, faults: Faults) -> DatasetVersion | None:
    """The data set version that a network is trained on; what does not fit is added to the faults.

    None if there is no such version that is ready: then it is among the faults.
    """
    if isinstance(new.architecture, Plugin) and new.architecture.name not in settings().network_plugins:
        # Its code would run where it is installed.
        faults.add("/architecture/name", "the operator has approved no plugin of this name")
    try:
        dataset = datasets.newest_ready(session, new.dataset, new.dataset_version)
    except Invalid as invalid:
        for fault in invalid.faults:
            faults.add(fault.pointer, fault.detail)
        return None
    if dataset.image_shape is not None and (detail := misfit(new.architecture, dataset.image_shape)):
        faults.add("/architecture/name", detail)
    if new.recipe is not None and new.recipe.patience is not None and not _has_validation(dataset):
        faults.add(
            "/recipe/patience", "is counted on validation rows, and the data set has none: leave it out"
        )
    return dataset


def _has_validation(dataset: DatasetVersion) -> bool:
    return bool((dataset.role_counts or {}).get("validation"))
