"""Which arithmetic a device is worth using for."""

from __future__ import annotations

import torch

from app.jobs.params import Precision

_BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")


def autocast_dtype(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type to compute convolutions and products in, or None for plain float32.

    `auto` is bfloat16 where the device computes in it, not where it would only emulate it; `bf16` is
    bfloat16 anywhere. Weights, their gradients and the loss are float32 in every case.
    """
    wanted = precision == "bf16" or (precision == "auto" and _computes_bf16(device))
    return torch.bfloat16 if wanted else None


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in _BF16_INSTRUCTIONS)
