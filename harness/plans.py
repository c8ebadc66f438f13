"""What is measured, as data. ``python -m harness.plans NAME`` prints one plan as JSON; bare, all names.

Cases run in the order listed: the cheap ones that fail first come first. Accuracy is scored before the first
case of its model, at the context of the scored case. A case with n quads yields 2n pairs; ``more`` are the
further looks that it takes while it is undecided.
"""

from __future__ import annotations

import sys

from harness.schema import AccuracyPlan, Case, RunPlan, encode_json

SMOLLM2 = "smollm2-135m"
QWEN3 = "qwen3-tiny"
DOMAINS = ("prose", "code", "chat")

CPU_QUICK = RunPlan(
    name="cpu-quick",
    cases=(
        Case(
            name="qwen3-384",
            role="guard",
            model=QWEN3,
            context_tokens=384,
            new_tokens=96,
            domains=("prose", "chat"),
            quads=1,
        ),
        Case(
            name="smollm2-192",
            role="scored",
            model=SMOLLM2,
            context_tokens=192,
            new_tokens=32,
            domains=DOMAINS,
            metrics=("decode", "prefill"),
            quads=2,
        ),
        Case(
            name="smollm2-768",
            role="guard",
            model=SMOLLM2,
            context_tokens=768,
            new_tokens=24,
            domains=("math",),
            metrics=("decode", "prefill"),
            quads=1,
        ),
    ),
    accuracy=AccuracyPlan(model=SMOLLM2, context_tokens=192, windows=2, positions=32),
    launch_timeout_s=150.0,
    request_timeout_s=45.0,
    warmup_tokens=128,
)

CPU = RunPlan(
    name="cpu",
    cases=(
        Case(
            name="qwen3-384",
            role="guard",
            model=QWEN3,
            context_tokens=384,
            new_tokens=128,
            domains=DOMAINS,
            quads=2,
        ),
        Case(
            name="smollm2-512",
            role="scored",
            model=SMOLLM2,
            context_tokens=512,
            new_tokens=48,
            domains=(*DOMAINS, "math"),
            metrics=("decode", "prefill"),
            quads=4,
        ),
        Case(
            name="smollm2-1536",
            role="guard",
            model=SMOLLM2,
            context_tokens=1536,
            new_tokens=32,
            domains=("math",),
            metrics=("decode", "prefill"),
            quads=2,
        ),
    ),
    accuracy=AccuracyPlan(model=SMOLLM2, context_tokens=512, windows=4, positions=64),
    launch_timeout_s=240.0,
    request_timeout_s=60.0,
    warmup_tokens=128,
)

GPU_4K = RunPlan(
    name="gpu-4k",
    cases=(
        Case(
            name="qwen3-512",
            role="guard",
            model=QWEN3,
            context_tokens=512,
            new_tokens=128,
            domains=DOMAINS,
            quads=2,
            more=(4, 6),
        ),
        Case(
            name="smollm2-4096",
            role="scored",
            model=SMOLLM2,
            context_tokens=4096,
            new_tokens=128,
            domains=(*DOMAINS, "math"),
            metrics=("decode", "prefill"),
            quads=4,
            more=(6, 8, 12, 16),
        ),
        Case(
            name="smollm2-7168",
            role="guard",
            model=SMOLLM2,
            context_tokens=7168,
            new_tokens=128,
            domains=("prose", "code"),
            metrics=("decode", "prefill"),
            quads=2,
            more=(4, 6),
        ),
    ),
    accuracy=AccuracyPlan(model=SMOLLM2, context_tokens=4096, windows=4, positions=256),
)

EMULATOR = RunPlan(
    name="emulator",
    cases=(
        Case(
            name="emulated-384",
            role="guard",
            model=QWEN3,
            context_tokens=384,
            new_tokens=24,
            domains=("prose", "chat"),
            quads=1,
            more=(2,),
        ),
        Case(
            name="emulated-192",
            role="scored",
            model=QWEN3,
            context_tokens=192,
            new_tokens=24,
            domains=DOMAINS,
            metrics=("decode", "prefill"),
            quads=4,
            more=(6, 8),
        ),
        Case(
            name="emulated-768",
            role="guard",
            model=QWEN3,
            context_tokens=768,
            new_tokens=24,
            domains=("math",),
            metrics=("decode", "prefill"),
            quads=1,
            more=(2,),
        ),
    ),
    accuracy=AccuracyPlan(model=QWEN3, context_tokens=192, windows=2, positions=16),
    launch_timeout_s=30.0,
    request_timeout_s=10.0,
    warmup_tokens=64,
)
"""For arms that the emulator plays: of the model only the tokenizer and the texts in its ids are used."""

PLANS = {plan.name: plan for plan in (CPU_QUICK, CPU, GPU_4K, EMULATOR)}


def main(arguments: list[str]) -> int:
    """0, or 2 with a sentence for a name that is no plan."""
    if not arguments:
        print("\n".join(PLANS))
        return 0
    plan = PLANS.get(arguments[0])
    if plan is None:
        print(f"There is no plan {arguments[0]!r}; there are {', '.join(PLANS)}.", file=sys.stderr)
        return 2
    print(encode_json(plan).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
