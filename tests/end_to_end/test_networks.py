"""Every network of our own: trained on photographs, downloaded, uploaded, deleted from, downloaded again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from app.jobs.params import ARCHITECTURE
from tests.end_to_end.conftest import POLICY as UNEXACTING
from tests.end_to_end.conftest import Service
from tests.end_to_end.test_uploads import NORMALISATION, upload
from workers.nets.factory import build
from workers.nets.network import Network

SIDE, EACH = 32, 60
_SPARSE = {"name": "gradient_sparsity", "form": "exact", "rho": 1e-3}
NETWORKS: dict[str, tuple[float, Mapping[str, Any]]] = {  # a width that is quick, and the training objective
    "resnet18": (1 / 16, {"name": "plain"}),
    "resnet20": (1 / 4, {"name": "plain"}),
    "resnet50": (1 / 16, {"name": "plain"}),
    "vgg16": (1 / 16, {"name": "plain"}),
    "mobilenet_v2": (1 / 4, {"name": "plain"}),
    "vit_small": (1 / 6, _SPARSE),
}
_DATASET = {"name": "photographs", "reader": "image_folder", "location": "photographs"}
_POLICY = UNEXACTING | {
    "publish_when": "approved",
    "ladder": [{"method": "finetune", "parameters": {"steps": 3}}, {"method": "retrain"}],
}


def _learned(name: str) -> dict[str, Any]:
    """Which network, and how it is trained."""
    width, objective = NETWORKS[name]
    return {
        "architecture": {"name": name, "width": width, "normalisation": NORMALISATION},
        "recipe": {"epochs": 1, "batch_size": 16, "objective": objective},
    }


def _trained(name: str) -> str:
    return f"trained-{name.replace('_', '-')}"


def _uploaded(name: str) -> str:
    return f"uploaded-{name.replace('_', '-')}"


@pytest.fixture(scope="module")
def pieces(service: Service) -> Path:
    """The folder `photographs`: square pieces of scikit-learn's two photographs, each of which is a class."""
    folder = service.data / "photographs"
    for label, photograph in enumerate(load_sample_images().images):
        (folder / str(label)).mkdir(parents=True)
        rows, columns = (size // SIDE for size in photograph.shape[:2])
        for number in np.random.default_rng(label).permutation(rows * columns)[:EACH].tolist():
            top, left = (SIDE * place for place in divmod(number, columns))
            piece = photograph[top : top + SIDE, left : left + SIDE]
            Image.fromarray(piece).save(folder / str(label) / f"{number:03d}.png")
    return folder


def _done(service: Service, job_id: str) -> None:
    job = service.ended(job_id)
    assert job["state"] == "done", job


def _weights(service: Service, model: str, number: int) -> bytes:
    response = service.http.get(f"/v1/models/{model}/versions/{number}/weights")
    assert response.is_success
    return response.content


def _loaded(name: str, content: bytes) -> Network:
    """The network with the file's tensors and no others."""
    architecture = ARCHITECTURE.validate_python(_learned(name)["architecture"])
    network = build(architecture, 2, (SIDE, SIDE, 3), torch.Generator())
    network.body.load_state_dict(safetensors.torch.load(content), strict=True)
    return network.eval()


def _test_rows(service: Service, folder: Path) -> tuple[Tensor, Tensor]:
    """Images and labels of the rows that the service measures accuracy on."""
    ids = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    found = service.post(f"/v1/datasets/{_DATASET['name']}/samples:lookup", {"sample_ids": ids})["samples"]
    names = [row["sample_id"] for row in found if row["role"] == "test" and not row["deleted"]]
    images = np.stack([np.asarray(Image.open(folder / name)) for name in names])
    labels = torch.tensor([int(name[0]) for name in names])
    return torch.from_numpy(images).permute(0, 3, 1, 2), labels


@pytest.fixture(scope="module")
def went_round(service: Service, pieces: Path) -> dict[str, str]:
    """The digest of what was uploaded for each network, after a deletion from all of them."""
    _done(service, service.post("/v1/datasets", _DATASET)["job_id"])
    trainings = []
    for name in NETWORKS:
        for model in (_trained(name), _uploaded(name)):
            service.post("/v1/models", {"name": model, "policy": _POLICY})
        training = {"dataset": _DATASET["name"], "alias": None, **_learned(name)}
        trainings.append(service.post(f"/v1/models/{_trained(name)}/train", training)["job_id"])
    for job_id in trainings:
        _done(service, job_id)

    digests, validations = {}, []
    for name in NETWORKS:
        digests[name] = upload(service, _weights(service, _trained(name), 1))
        new = {"dataset": _DATASET["name"], "alias": "production", "weights": digests[name], **_learned(name)}
        validations.append(service.post(f"/v1/models/{_uploaded(name)}/versions", new)["job_id"])
    for job_id in validations:
        _done(service, job_id)

    forgotten = sorted(str(path.relative_to(pieces)) for path in pieces.rglob("*.png"))[::3]
    items = [{"sample_id": sample_id} for sample_id in forgotten]
    request = service.post("/v1/deletion-requests", {"dataset": _DATASET["name"], "items": items})
    _approve_all(service, request["id"])
    assert service.finished(request["id"])["state"] == "completed"
    return digests


def _approve_all(service: Service, request_id: str) -> None:
    """A person decides: an epoch teaches so little by heart that no attack would find it."""
    new = {"name": "officer", "scopes": ["jobs:approve"]}
    officer = {"Authorization": f"Bearer {service.post('/v1/keys', new)['secret']}"}

    def targets() -> list[str]:
        found = (service.get(f"/v1/deletion-requests/{request_id}") or {})["targets"]
        return [target["job_id"] for target in found if target["job_id"]]

    service.until(lambda: len(targets()) == len(NETWORKS), "a job for every network")
    for job_id in targets():
        service.until(partial(_awaits, service, job_id), "a method's end", 300)
        place = f"/v1/jobs/{job_id}/approve"
        assert service.http.post(place, json={"reason": "seen"}, headers=officer).is_success


def _awaits(service: Service, job_id: str) -> bool:
    job = service.get(f"/v1/jobs/{job_id}") or {"state": ""}
    assert job["state"] not in ("failed", "done"), job
    return bool(job["state"] == "awaiting_approval")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_our_own_goes_round(
    service: Service, pieces: Path, went_round: Mapping[str, str], name: str
) -> None:
    """An epoch, and steps of unlearning; what is downloaded is what was measured, not what was uploaded."""
    assert len(service.get(f"/v1/models/{_trained(name)}/versions/1")["figures"]["curve"]) == 1
    successor = service.get(f"/v1/models/{_uploaded(name)}/versions/2")
    assert (successor["origin"], successor["aliases"]) == ("unlearned", ["production"])
    content = _weights(service, _uploaded(name), 2)
    assert hashlib.sha256(content).hexdigest() == successor["weights"] != went_round[name]
    images, labels = _test_rows(service, pieces)
    with torch.inference_mode():
        hits = _loaded(name, content)(images).argmax(1)
    measured = successor["figures"]["accuracy"]["test"]
    assert (measured["correct"], measured["n"]) == (int((hits == labels).sum()), len(labels))
