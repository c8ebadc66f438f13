"""A target model from a path: a Hugging Face directory or a GGUF file."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.config import ModelFileError
from engine.models import config as model_config
from engine.models import weights
from engine.models.decoder import CausalLM


def load(path: Path, *, device: torch.device, dtype: torch.dtype) -> CausalLM:
    """The model at ``path``, ready for inference. Raises an EngineError naming what is wrong with it."""
    if path.is_dir():
        config, tensors = model_config.load(path), weights.read_tensors(path)
    elif path.suffix == ".gguf":
        # Only this format needs the gguf package.
        from engine.models import gguf

        model = gguf.read(path)
        config, tensors = model.config, model.tensors
    else:
        raise ModelFileError(f"{path} is neither a model directory nor a .gguf file.")
    built = weights.build(config, tensors, str(path), device=device, dtype=dtype)
    built.prepare_inference()
    return built
