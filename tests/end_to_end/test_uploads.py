"""A caller's own images and own torchvision networks: uploaded, validated, deleted from, downloaded."""

from __future__ import annotations

import hashlib
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
    new = {"name": "own-images", "reader": "image_folder", "location": "own-images"}
    job = service.ended(service.post("/v1/datasets", new)["job_id"])
    assert job["state"] == "done", job
    return folder


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
    """A model whose production version has these weights."""
    service.post("/v1/models", {"name": name, "policy": POLICY})
    new = {
        "weights": weights,
        "architecture": {"family": "torchvision", "name": network, "normalisation": NORMALISATION},
        "dataset": "own-images",
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
    request = service.post("/v1/deletion-requests", {"dataset": "own-images", "items": items})
    assert service.finished(request["id"])["state"] == "completed"

    second = service.get(f"/v1/models/{model}/versions/2")
    assert second["aliases"] == ["production"]
    response = service.http.get(f"/v1/models/{model}/versions/2/weights")
    assert response.headers["etag"] == f'"{second["weights"]}"'
    assert hashlib.sha256(response.content).hexdigest() == second["weights"] != before
    downloaded = _network(name)
    downloaded.load_state_dict(safetensors.torch.load(response.content), strict=True)

    # The service measured the network that a caller gets: both know the same test images.
    roles = service.get("/v1/datasets/own-images")[0]["role_counts"]
    test_ids = _of_role(service, images, "test")
    assert len(test_ids) == roles["test"]
    with torch.inference_mode():
        hits = downloaded(_pixels(images, test_ids)).argmax(1)
    labels = torch.tensor([int(sample_id[len("class-")]) for sample_id in test_ids])
    measured = second["figures"]["accuracy"]["test"]
    assert measured == {**measured, "correct": int((hits == labels).sum()), "n": len(test_ids)}


def _of_role(service: Service, folder: Path, role: str) -> list[str]:
    """The sample IDs that have this role, as the service says."""
    ids = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    found = service.post("/v1/datasets/own-images/samples:lookup", {"sample_ids": ids})
    return [row["sample_id"] for row in found["samples"] if row["role"] == role]
