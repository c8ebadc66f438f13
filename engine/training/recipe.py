"""The recipe of a shipped draft as data: its shape, its buckets, how much of everything.

``SMOLLM2`` is made for one GPU of 140 GB; ``TINY`` runs the same code on a CPU in seconds for tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.models.config import ModelConfig
from engine.models.dspark_config import DraftConfig
from engine.training.dataset import BucketPlan


@dataclass(frozen=True)
class Recipe:
    """``documents`` are written by the target itself before the buckets are filled.

    ``compact``: features are cached in eight bits, so that twice as many sequences fit. ``rounds``: how often
    documents and buckets are made anew in the course of one run, where memory holds only a part of the data.
    ``natural_share``: anchors that stand in the prompt's tail rather than in the continuation.
    """

    taps: tuple[int, ...]
    draft_layers: int
    block_size: int
    markov_rank: int
    mask_token_id: int
    documents: int
    document_tokens: int
    document_batch: int
    buckets: tuple[BucketPlan, ...]
    held_out: tuple[BucketPlan, ...]
    muon_lr: float = 4e-3
    adam_lr: float = 6e-3
    compact: bool = True
    rounds: int = 1
    natural_share: float = 0.25

    def draft_config(self, target: ModelConfig, tokenizer_sha256: str | None) -> DraftConfig:
        """A draft of the target's own width, untied: embedding and head stay the target's modules."""
        body = replace(target, architecture="qwen3", num_layers=self.draft_layers, tie_embeddings=False)
        return DraftConfig(
            body=body,
            block_size=self.block_size,
            mask_token_id=self.mask_token_id,
            target_layer_ids=self.taps,
            num_target_layers=target.num_layers,
            markov_rank=self.markov_rank,
            markov_head_type="vanilla",
            confidence_head=True,
            confidence_with_markov=True,
            tokenizer_sha256=tokenizer_sha256,
        )


SMOLLM2 = Recipe(
    taps=(1, 10, 19, 28),
    draft_layers=2,
    block_size=7,
    markov_rank=32,
    # Ids 7..16 of this vocabulary have untrained, nearly equal rows: any of them is a blank.
    mask_token_id=16,
    documents=6144,
    document_tokens=640,
    document_batch=1024,
    buckets=(
        BucketPlan(192, 20480, 224, 0.27, 1024),
        BucketPlan(320, 12288, 224, 0.22, 1024),
        BucketPlan(576, 6144, 224, 0.16, 1024),
        BucketPlan(1024, 4096, 192, 0.16, 512),
        BucketPlan(2048, 1280, 160, 0.10, 256),
        BucketPlan(3840, 448, 160, 0.05, 112),
        BucketPlan(448, 2048, 160, 0.04, 1024, raw=True),
    ),
    held_out=(
        BucketPlan(384, 96, 160, 1.0, 96),
        BucketPlan(1024, 64, 160, 1.0, 64),
        BucketPlan(3584, 16, 160, 1.0, 16),
    ),
)

# A second pass from a trained draft: fresh sequences, exact features, a third of the learning rate.
SMOLLM2_REFINE = replace(
    SMOLLM2,
    documents=3072,
    document_tokens=512,
    document_batch=3072,
    buckets=(
        BucketPlan(192, 9216, 224, 0.25, 3072),
        BucketPlan(384, 6144, 224, 0.25, 2048),
        BucketPlan(768, 3072, 192, 0.22, 1536),
        BucketPlan(1536, 1024, 160, 0.16, 512),
        BucketPlan(3200, 512, 160, 0.12, 256),
    ),
    muon_lr=1.5e-3,
    adam_lr=2e-3,
    compact=False,
)

# From a trained draft to the contexts that are served: four times fresh sequences, most of them long.
SMOLLM2_LONG = replace(
    SMOLLM2,
    documents=4096,
    document_tokens=512,
    document_batch=4096,
    buckets=(
        BucketPlan(256, 6144, 192, 0.12, 6144),
        BucketPlan(640, 7168, 192, 0.18, 3584),
        BucketPlan(1024, 6144, 160, 0.22, 2048),
        BucketPlan(1536, 3072, 160, 0.16, 1536),
        BucketPlan(2048, 3072, 160, 0.16, 1024),
        BucketPlan(3072, 1280, 144, 0.08, 640),
        BucketPlan(3840, 1024, 144, 0.08, 512),
    ),
    held_out=(
        BucketPlan(1024, 64, 160, 1.0, 64),
        BucketPlan(2048, 48, 160, 1.0, 48),
        BucketPlan(3584, 24, 160, 1.0, 24),
    ),
    muon_lr=2.5e-3,
    adam_lr=3.5e-3,
    rounds=4,
    natural_share=0.1,
)

TINY = Recipe(
    taps=(1, 2, 4),
    draft_layers=1,
    block_size=4,
    markov_rank=8,
    mask_token_id=99,
    documents=0,
    document_tokens=0,
    document_batch=1,
    buckets=(BucketPlan(40, 12, 16, 1.0, 6, raw=True),),
    held_out=(BucketPlan(32, 4, 16, 1.0, 4, raw=True),),
)

RECIPES = {
    "smollm2-135m": SMOLLM2,
    "smollm2-135m-refine": SMOLLM2_REFINE,
    "smollm2-135m-long": SMOLLM2_LONG,
    "tiny": TINY,
}
