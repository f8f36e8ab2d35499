"""The shell of every network: raw pixels in, logits out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from app.jobs.params import Normalisation

_FULL = 255.0  # a pixel's largest value


class Network(nn.Module):
    """Normalises uint8 images by its own constants, then classifies them with `body`.

    `mean` and `std` (one value a channel, in pixel units) are fixed by the architecture, or else taken from
    the rows the network is trained on; no optimiser moves them. A weights file holds the body's tensors
    alone, under the names that the body gives them; the constants stand beside them, as its facts.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        make_body: Callable[[torch.Generator], nn.Module],
        channels: int,
        generator: torch.Generator,
        *,
        body_channels: int | None = None,
        normalisation: Normalisation | None = None,
    ) -> None:
        """`body_channels`: how many the body takes; images of one channel are given to it so many times."""
        super().__init__()
        self._make_body = make_body
        self._copies = (body_channels or channels) if channels == 1 else 1
        self._normalisation = normalisation
        self.body = make_body(generator)
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))
        self._fix_normalisation()

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K] of images uint8 [B, C, H, W]."""
        pixels = (images.to(self.mean.dtype) - self.mean).div_(self.std)
        if self._copies > 1:
            pixels = pixels.expand(-1, self._copies, -1, -1)
        found = self.body(pixels)
        logits: Tensor = found if isinstance(found, Tensor) else found[0]  # the others are auxiliary
        return logits

    def start_afresh(self, generator: torch.Generator) -> None:
        """Draw every weight anew, in place, on whatever device the network is; forget what was learnt."""
        self.body.load_state_dict(self._make_body(generator).state_dict())
        self.mean.zero_()
        self.std.fill_(1)
        self._fix_normalisation()

    def normalise_by(self, parts: Iterable[Tensor]) -> None:
        """Unless they are fixed, take mean and deviation a channel from parts of uint8 [n, C, H, W]."""
        if self._normalisation is not None:
            return
        count, sums, squares = 0, *torch.zeros(2, len(self.mean), dtype=torch.float64)
        for images in parts:
            pixels = images.to(torch.int64).permute(1, 0, 2, 3).flatten(1)  # [C, n H W]: sums are exact
            count += pixels.shape[1]
            sums += pixels.sum(1).cpu()
            squares += pixels.square().sum(1).cpu()
        mean = sums / count
        variance = squares / count - mean.square()
        self.mean.copy_(mean[:, None, None])
        self.std.copy_(variance.clamp_min(1).sqrt()[:, None, None])

    @property
    def normalisation(self) -> Normalisation:
        """The constants in the units of the API, where the largest pixel is 1."""
        mean, std = (tuple((each / _FULL).flatten().tolist()) for each in (self.mean, self.std))
        return Normalisation(mean=mean, std=std)

    # --- weights files --------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """What a weights file of this network holds."""
        return self.body.state_dict()

    def facts(self) -> dict[str, Any]:
        """What stands beside the tensors: the constants, in pixel units, to the last bit."""
        return {"mean": self.mean.flatten().tolist(), "std": self.std.flatten().tolist()}

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take over what a weights file holds.

        Raises:
            ValueError: these are not exactly this network's tensors, or its input's constants are missing.
        """
        try:
            self.body.load_state_dict(tensors)
        except RuntimeError as fault:
            raise ValueError("the tensors are not this network's") from fault
        if self._normalisation is not None:
            return
        for name, constants in (("mean", self.mean), ("std", self.std)):
            values = torch.tensor(facts.get(name, []), dtype=torch.float64)
            if values.shape != constants.flatten().shape:
                raise ValueError("nothing says how the network's input is normalised")
            constants.copy_(values[:, None, None])

    @torch.no_grad()
    def _fix_normalisation(self) -> None:
        if self._normalisation is not None:
            self.mean.copy_(
                _FULL * torch.tensor(self._normalisation.mean, dtype=torch.float64)[:, None, None]
            )
            self.std.copy_(_FULL * torch.tensor(self._normalisation.std, dtype=torch.float64)[:, None, None])
