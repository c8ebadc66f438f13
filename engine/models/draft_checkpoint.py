"""DSpark drafts on disk, in DeepSpec's format: config.json and safetensors without a prefix."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.config import ConfigError
from engine.layers.embedding import Embedding
from engine.layers.linear import Linear, prepack
from engine.models.config import read_json
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft, Vocabulary
from engine.models.dspark_config import from_deepspec, require_fit, to_deepspec
from engine.models.weights import SINGLE, assign, read_tensors

EMBEDDING = "embed_tokens"
HEAD = "lm_head"


def load(directory: Path, target: CausalLM, *, tokenizer_sha256: str | None = None) -> DSparkDraft:
    """The draft at ``directory``, on the device and in the dtype of ``target``, ready for inference.

    ``tokenizer_sha256``: hash of the target's tokenizer, compared with the draft's where it has one.
    An embedding or head that is not stored, or that equals the target's, is the target's own module.
    Raises ConfigError or WeightsError naming both sides of what does not fit.
    """
    source = str(directory / "config.json")
    config = from_deepspec(read_json(directory / "config.json"), source)
    require_fit(config, target.config, tokenizer_sha256, source)
    tensors = read_tensors(directory)
    shape = (config.body.vocab_size, config.body.hidden_size)
    with torch.device("meta"):
        own = {EMBEDDING: Embedding(*shape), HEAD: Linear(*reversed(shape))}
    shared = {EMBEDDING: target.embed_tokens, HEAD: target.lm_head}
    modules = {}
    for name, module in own.items():
        stored = tensors.pop(f"{name}.weight", None)
        if stored is None or _equal(stored, shared[name].weight):
            modules[name] = shared[name]
            continue
        assign(module, {"weight": stored}, f"{directory}: {name}", device=target.device, dtype=target.dtype)
        prepack(module)
        modules[name] = module
    rows = modules[EMBEDDING].weight.shape[0]
    if config.mask_token_id >= rows:
        raise ConfigError(
            f"{source}: mask_token_id is {config.mask_token_id}, but the embedding that the draft shares "
            f"with its target has {rows} rows: store the draft's own, or use a mask id below {rows}."
        )
    size = min(config.body.vocab_size, target.config.vocab_size)
    with torch.device("meta"):
        draft = DSparkDraft(config, Vocabulary(modules[EMBEDDING], modules[HEAD], size))
    assign(draft, tensors, str(directory), device=target.device, dtype=target.dtype)
    draft.prepare_inference()
    return draft


def save(draft: DSparkDraft, directory: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write ``draft`` without its vocabulary modules, which a target lends it again on loading."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_deepspec(draft.config), indent=2, sort_keys=True) + "\n"
    (directory / "config.json").write_text(text, encoding="utf-8")
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in draft.state_dict().items()}
    save_file(tensors, directory / SINGLE, metadata={"format": "pt"})


def _equal(stored: Tensor, weight: Tensor) -> bool:
    return stored.shape == weight.shape and torch.equal(stored.to(weight.device, weight.dtype), weight)
