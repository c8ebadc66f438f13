"""Tensors of a Hugging Face checkpoint, checked before they become a model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from engine.config import WeightsError
from engine.models.config import ModelConfig, read_json
from engine.models.decoder import CausalLM

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PREFIX = "model."
_NAMES_SHOWN = 5


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors of a directory, one file or sharded, mapped from disk where the platform allows it.

    Raises WeightsError when a file is absent, truncated, or lacks a tensor that the index promises.
    """
    if (directory / SINGLE).exists():
        return _read_file(directory / SINGLE)
    if not (directory / INDEX).exists():
        raise WeightsError(f"{directory} holds neither {SINGLE} nor {INDEX}; point at a model directory.")
    placement = read_json(directory / INDEX).get("weight_map")
    if not isinstance(placement, dict) or not placement:
        raise WeightsError(f"{directory / INDEX} has no weight_map; fetch the checkpoint again.")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(placement.values())):
        tensors |= _read_file(directory / shard)
    promised = {name for name in placement if name not in tensors}
    if promised:
        raise WeightsError(
            f"{directory}: {INDEX} promises tensors that its shards lack: {_some(promised)}; "
            "fetch the checkpoint again."
        )
    return tensors


def build(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> CausalLM:
    """A model holding ``tensors``, named as Hugging Face names them, on ``device`` in ``dtype``."""
    own = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    if config.tie_embeddings:
        own.pop("lm_head.weight", None)
    with torch.device("meta"):
        model = CausalLM(config)
    assign(model, own, source, device=device, dtype=dtype)
    model.tie()
    return model


def assign(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Put ``tensors`` in the place of the parameters of ``model``, which may be on the meta device.

    A parameter shared by two modules is wanted once, under the name it was registered with first; the
    caller ties the other again. Raises WeightsError naming what is missing, unexpected, mis-shaped, not
    finite or wholly zero.
    """
    wanted = dict(model.named_parameters())
    check_names(wanted, tensors, source)
    placed = {}
    for name, parameter in wanted.items():
        tensor = tensors[name]
        if tensor.shape != parameter.shape:
            raise WeightsError(
                f"{source}: {name} should have shape {list(parameter.shape)}, but has {list(tensor.shape)}; "
                "check that config.json belongs to these weights."
            )
        placed[name] = tensor.to(device=device, dtype=dtype)
        check_values(placed[name], name, source)
    model.load_state_dict(placed, strict=False, assign=True)


def check_names(wanted: Collection[str], present: Collection[str], source: str) -> None:
    """Raise WeightsError unless exactly the ``wanted`` tensors are ``present``."""
    missing, extra = set(wanted) - set(present), set(present) - set(wanted)
    if missing or extra:
        parts = [f"{len(missing)} missing ({_some(missing)})"] if missing else []
        parts += [f"{len(extra)} unexpected ({_some(extra)})"] if extra else []
        raise WeightsError(
            f"{source}: the tensors do not match the config: {', '.join(parts)}; "
            "check that config.json belongs to these weights."
        )


def check_values(tensor: Tensor, name: str, source: str) -> None:
    """Raise WeightsError for NaN, infinity, or nothing but zeros."""
    low, high = (bound.item() for bound in tensor.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise WeightsError(f"{source}: {name} holds NaN or infinity; fetch the checkpoint again.")
    if low == high == 0:
        raise WeightsError(f"{source}: {name} is zero throughout; fetch the checkpoint again.")


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            # The handle is no mapping: it has keys() and cannot be iterated itself.
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise WeightsError(f"{path} does not exist; fetch the checkpoint again.") from None
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise WeightsError(
            f"{path} ({size} bytes) is not a whole safetensors file: {error}; fetch it again."
        ) from error


def _some(names: set[str]) -> str:
    shown = sorted(names)[:_NAMES_SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
