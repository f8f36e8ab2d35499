"""A caller's own images and own torchvision networks: uploaded, validated, deleted from, downloaded."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import get_model

from tests.end_to_end.conftest import Service

CLASSES, EACH, SIDE = 3, 40, 32
NORMALISATION = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
RECIPE = {"epochs": 1, "batch_size": 32, "learning_rate": 0.01}
POLICY = {
    "ladder": [{"method": "finetune", "parameters": {"steps": 3}}, {"method": "retrain"}],
    "batch_window_seconds": 0,
}


@pytest.fixture(scope="module")
def images(service: Service) -> Path:
    """A registered folder `own-images` of three classes that differ in colour."""
    folder = service.data / "own-images"
    generator = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class-{label}").mkdir(parents=True)
        for number in range(EACH):
            pixels = generator.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8)
            pixels[:, :, label] += 100
            Image.fromarray(pixels).save(folder / f"class-{label}" / f"{number:02d}.png")
    _register_images(service, "own-images")
    return folder


def _register_images(service: Service, name: str) -> None:
    """Register the folder under this name: what is deleted from another name's data set stays in this one."""
    new = {"name": name, "reader": "image_folder", "location": "own-images"}
    job = service.ended(service.post("/v1/datasets", new)["job_id"])
    assert job["state"] == "done", job


def _network(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = get_model(name, weights=None, num_classes=CLASSES)
    return network.eval()


def upload(service: Service, content: bytes) -> str:
    """Upload a weights file; its digest."""
    digest = hashlib.sha256(content).hexdigest()
    response = service.http.put(f"/v1/weights/{digest}", content=content)
    assert response.status_code in (200, 201), response.text
    return digest


def _registered(service: Service, name: str, weights: str, network: str) -> dict[str, Any]:
    """A model whose production version has these weights, on a data set of its own name."""
    _register_images(service, name)
    service.post("/v1/models", {"name": name, "policy": POLICY})
    new = {
        "weights": weights,
        "architecture": {"family": "torchvision", "name": network, "normalisation": NORMALISATION},
        "dataset": name,
        "recipe": RECIPE,
        "alias": "production",
    }
    job = service.ended(service.post(f"/v1/models/{name}/versions", new)["job_id"])
    assert job["state"] == "done", job
    version: dict[str, Any] = service.get(f"/v1/models/{name}/versions/1")
    return version


def _pixels(folder: Path, sample_ids: list[str]) -> Tensor:
    """The images as any torchvision pipeline would give them to a network."""
    stacked = np.stack([np.asarray(Image.open(folder / sample_id)) for sample_id in sample_ids])
    mean, std = (torch.tensor(NORMALISATION[key])[:, None, None] for key in ("mean", "std"))
    return (torch.from_numpy(stacked).permute(0, 3, 1, 2) / 255 - mean) / std


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_a_torchvision_network_goes_round(service: Service, images: Path, name: str) -> None:
    """Saved by torchvision code, uploaded, deleted from, downloaded, and loaded by plain torchvision."""
    original = _network(name)
    before = upload(service, safetensors.torch.save(original.state_dict()))
    model = f"own-{name.replace('_', '-')}"
    first = _registered(service, model, before, name)
    assert (first["state"], first["aliases"], first["weights"]) == ("ready", ["production"], before)

    forgotten = [f"class-{label}/{number:02d}.png" for label in range(CLASSES) for number in range(4)]
    items = [{"sample_id": sample_id} for sample_id in forgotten]
    request = service.post("/v1/deletion-requests", {"dataset": model, "items": items})
    assert service.finished(request["id"])["state"] == "completed"

    second = service.get(f"/v1/models/{model}/versions/2")
    assert second["aliases"] == ["production"]
    response = service.http.get(f"/v1/models/{model}/versions/2/weights")
    assert response.headers["etag"] == f'"{second["weights"]}"'
    assert hashlib.sha256(response.content).hexdigest() == second["weights"] != before
    downloaded = _network(name)
    downloaded.load_state_dict(safetensors.torch.load(response.content), strict=True)

    # The service measured the network that a caller gets: both know the same test images.
    test_ids = _left_of_role(service, images, model, "test")
    assert test_ids
    with torch.inference_mode():
        hits = downloaded(_pixels(images, test_ids)).argmax(1)
    labels = torch.tensor([int(sample_id[len("class-")]) for sample_id in test_ids])
    measured = second["figures"]["accuracy"]["test"]
    assert (measured["correct"], measured["n"]) == (int((hits == labels).sum()), len(test_ids))


def _left_of_role(service: Service, folder: Path, dataset: str, role: str) -> list[str]:
    """The sample IDs that have this role and were not deleted, as the service says."""
    ids = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    found = service.post(f"/v1/datasets/{dataset}/samples:lookup", {"sample_ids": ids})
    return [row["sample_id"] for row in found["samples"] if row["role"] == role and not row["deleted"]]


@pytest.fixture
def weights() -> dict[str, Tensor]:
    """The tensors of a network that fits the images."""
    return dict(_network("mobilenet_v3_small").state_dict())


def _last(weights: dict[str, Tensor]) -> str:
    return [name for name in weights if name.endswith("weight")][-1]


def _without(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in weights.items() if name != _last(weights)}


def _with_another(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**weights, "one.too.many": torch.zeros(1)}


def _misshapen(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    first = next(iter(weights))
    return {**weights, first: weights[first][:1].clone()}


def _not_a_number(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    first = next(iter(weights))
    return {**weights, first: torch.full_like(weights[first], torch.nan)}


def _of_seven_classes(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(get_model("mobilenet_v3_small", weights=None, num_classes=7).state_dict())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_without, "the file lacks the tensor"),
        (_with_another, "the network has no tensor one.too.many"),
        (_misshapen, "the wrong shape has"),
        (_not_a_number, "not finite numbers"),
        (_of_seven_classes, "7 classes; the data set has 3"),
    ],
)
def test_a_wrong_network_is_refused_and_leaves_nothing(
    service: Service,
    images: Path,
    weights: dict[str, Tensor],
    spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    reason: str,
) -> None:
    """The job says what is wrong; the version is failed, its file gone, and no alias names it."""
    model = f"wrong-{uuid.uuid4().hex[:8]}"
    service.post("/v1/models", {"name": model})
    digest = upload(service, safetensors.torch.save(spoil(weights)))
    architecture = {"family": "torchvision", "name": "mobilenet_v3_small", "normalisation": NORMALISATION}
    new = {"weights": digest, "architecture": architecture, "dataset": "own-images"}
    job = service.ended(service.post(f"/v1/models/{model}/versions", new)["job_id"])
    assert job["state"] == "failed"
    version = service.get(f"/v1/models/{model}/versions/1")
    assert (version["state"], version["weights"], version["aliases"]) == ("failed", None, [])
    assert any(reason in fault["detail"] for fault in version["faults"]), version["faults"]
    assert not list((service.var / "store").rglob(digest))
    assert service.http.get(f"/v1/models/{model}/versions/1/weights").status_code == 404


def test_a_wrong_file_is_refused_at_once(service: Service, weights: dict[str, Tensor]) -> None:
    """A pickle, a file that was cut off, and one that is not what its address says."""
    content = safetensors.torch.save(weights)
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    for sent, reason in (
        (buffer.getvalue(), "zip archive"),
        (content[:-9], "cut off"),
        (b"", "no safetensors"),
    ):
        digest = hashlib.sha256(sent).hexdigest()
        response = service.http.put(f"/v1/weights/{digest}", content=sent)
        assert response.status_code == 422
        assert reason in response.json()["errors"][0]["detail"]
        assert not list((service.var / "store").rglob(digest))
    response = service.http.put(f"/v1/weights/{'0' * 64}", content=content)
    assert response.status_code == 422
    assert hashlib.sha256(content).hexdigest() in response.json()["errors"][0]["detail"]
    assert not list((service.var / "store" / "drafts").glob("*"))


def test_a_version_trained_on_deleted_rows_is_quarantined(service: Service, images: Path) -> None:
    """It is registered, but no alias may name it, and it says why."""
    model = "own-latecomer"
    _register_images(service, model)
    service.post("/v1/deletion-requests", {"dataset": model, "items": [{"sample_id": "class-0/00.png"}]})
    digest = upload(service, safetensors.torch.save(_network("mobilenet_v3_small").state_dict()))
    service.post("/v1/models", {"name": model})
    architecture = {"family": "torchvision", "name": "mobilenet_v3_small", "normalisation": NORMALISATION}
    ids = [f"class-0/{number:02d}.png" for number in range(20)]
    new = {"weights": digest, "architecture": architecture, "dataset": model, "rows": {"sample_ids": ids}}
    registered = service.post(f"/v1/models/{model}/versions", new)
    assert any("retrain" in note for note in registered["notes"])
    job = service.ended(registered["job_id"])
    assert (job["state"], "deleted" in job["reason"]) == ("done", True)
    version = service.get(f"/v1/models/{model}/versions/1")
    assert (version["state"], version["aliases"], version["rows"], version["quarantined"]) == (
        "ready",
        [],
        20,
        1,
    )
    refused = service.http.put(
        f"/v1/models/{model}/aliases/production", json={"version": 1, "reason": "in spite of all"}
    )
    assert refused.status_code == 409
