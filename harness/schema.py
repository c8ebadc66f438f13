"""Values that cross the harness boundary: what to measure, what was seen, what it means.

Everything here is a frozen ``msgspec`` struct with unknown fields forbidden, so one definition
serves TOML plans, JSON records and MessagePack messages. ``None`` means "not measured"; zero is a
measurement. NaN and infinity never enter a record: ``encode_json`` refuses them.

Prefixes carry the trust model: ``observed_*`` was seen by the manager with its own clock,
``reported_*`` is what a worker said about itself.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, dataclass_transform

import msgspec

SCHEMA_VERSION = 1

Arm = Literal["baseline", "candidate"]
Mode = Literal["ar", "dspark"]
Role = Literal["scored", "guard"]
Metric = Literal["decode", "prefill"]
GateState = Literal["PASS", "FAIL", "NOT_RUN"]
LaunchStage = Literal["start", "load", "warmup", "generate", "score", "stop"]

Positive = Annotated[int, msgspec.Meta(ge=1)]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every value: immutable, keyword-only, unknown fields refused."""


class Case(Frozen, frozen=True):
    """One row of a plan: a model at a context, and what is read from it."""

    name: str
    role: Role
    model: str
    context_tokens: Positive
    new_tokens: Positive
    domains: tuple[str, ...]
    modes: tuple[Mode, ...] = ("ar", "dspark")
    metrics: tuple[Metric, ...] = ("decode",)
    quads: Positive = 1
    """Quads that are run before the case is judged at all."""
    more: tuple[Positive, ...] = ()
    """Numbers of quads at which it is judged again while it is undecided; the last is the budget."""

    @property
    def looks(self) -> tuple[int, ...]:
        """Quads at each look."""
        return (self.quads, *self.more)


class AccuracyPlan(Frozen, frozen=True):
    """Held-out windows whose next-token distributions are compared between the arms."""

    model: str
    context_tokens: Positive
    windows: Positive
    positions: Positive
    """The last ``positions`` positions of each window are scored."""


class RunPlan(Frozen, frozen=True):
    """What one run measures. Data only: the manager adds the seed and the order."""

    name: str
    cases: tuple[Case, ...]
    accuracy: AccuracyPlan | None = None
    launch_timeout_s: float = 180.0
    request_timeout_s: float = 120.0
    warmup_tokens: Positive | None = None
    """Length of the untimed warm-up prompts; None means each case's own context, which code that is
    compiled or tuned per shape needs."""
    engine_environment: dict[str, str] = {}
    """Engine overrides that the plan names; any other override makes a run unscorable."""


class Tiers(Frozen, frozen=True):
    """Gain against main, in percent, from which each tier is earned."""

    XS: float = 2.0
    S: float = 3.5
    M: float = 6.0
    L: float = 10.0
    XL: float = 18.0


class Floors(Frozen, frozen=True):
    """Least admissible ratio candidate / baseline."""

    ar: float = 0.98
    dspark: float = 0.98
    tau: float = 0.95
    accepted: float = 0.95
    guard: float = 0.98
    prefill: float = 0.95
    """Of the scored case: work moved before the first token must not count as a gain of decoding."""


class AccuracyBars(Frozen, frozen=True):
    top1_min: float = 0.90
    kl_max_nats: float = 0.10


class Policy(Frozen, frozen=True):
    """The bars a verdict is judged by. Read from the base ref, never from the candidate."""

    tiers_pct: Tiers = Tiers()
    floors: Floors = Floors()
    accuracy: AccuracyBars = AccuracyBars()
    confidence: float = 0.95
    min_launches: Positive = 3
    """Independent processes per arm that must agree before losslessness can pass."""
    max_dspark_ar_per_tau: float = 1.05
    max_reported_gap: float = 0.05
    max_bandwidth_share: float = 1.05
    min_repeat_ttft: float = 0.5
    """Time to first token of a prompt's second run over its first; all below this means a prompt cache."""
    min_distinct_4gram: float = 0.5
    accepted_noise: float = 0.005
    """Drafts per round by which the accepted floor may be missed: what rounding of a few rounds can do."""
    near_tie_nats: float = 0.05
    """A first differing token is a near-tie when main's own log-probabilities of both lie this close."""


class ModelFiles(Frozen, frozen=True):
    """Where a model lies on this machine and what its files must hash to."""

    name: str
    target: str
    target_sha256: str
    draft: str | None = None
    draft_sha256: str | None = None


class ModelHashes(Frozen, frozen=True):
    """What a model hashed to before any worker saw it: sha256 of the ``sha256sum`` listing of its files."""

    target_sha256: str
    draft_sha256: str | None = None


class ArmSource(Frozen, frozen=True):
    """One build as the manager starts it."""

    arm: Arm
    tree: str
    """Absolute path of the pinned tree."""
    worker: tuple[str, ...]
    """Argument vector of the worker, sandbox prefix included."""
    commit_sha: str
    environment: dict[str, str] = {}
    emulated: bool = False
    """Whether the worker plays a scenario; only such a one is told its launch and its slot."""


class RunRequest(Frozen, frozen=True):
    """All that the manager needs, handed over as one JSON file."""

    plan: RunPlan
    seed: int
    baseline: ArmSource
    candidate: ArmSource
    models: tuple[ModelFiles, ...]
    corpus: str
    """Absolute path of the pinned corpus."""
    policy: Policy = Policy()
    """Prompts are admitted and further looks are taken by it; verdicts come later."""
    watch: bool = True
    """Whether the machine's fitness is read around launches; an emulated engine says nothing about it."""
    between_builds: dict[str, float] = {}
    """Variance (squared log units) by which builds of one source differ on an axis, from calibration."""


class Burst(Frozen, frozen=True, array_like=True):
    """Token ids that arrived together. The first burst of a generation comes from prefill."""

    elapsed_s: float
    """Seconds from sending the request to receiving this burst, by the manager's clock."""
    tokens: int


class ReportedGeneration(Frozen, frozen=True):
    """What the worker says of one generation. A claim, cross-checked and never scored."""

    prefill_tokens: int
    """Prompt tokens actually computed; fewer than the prompt means a cache answered."""
    prompt_sha256: str
    proposed: tuple[int, ...]
    """Draft tokens sent to verification in each round."""
    accepted: tuple[int, ...]
    """Draft tokens accepted in each round."""
    decode_s: float
    finish_reason: Literal["length", "stop"]
    temperature: float
    peak_memory_bytes: int | None = None


class Sample(Frozen, frozen=True):
    """One timed generation: the raw material of every number."""

    case: str
    arm: Arm
    mode: Mode
    quad: int
    slot: int
    """Position 0..3 of the launch inside its quad."""
    launch: int
    prompt_id: str
    domain: str
    prompt_tokens: int
    prompt_sha256: str
    requested_tokens: int
    token_ids: tuple[int, ...]
    bursts: tuple[Burst, ...]
    reported: ReportedGeneration
    observed_stop: bool | None = None
    """Whether the last token is one of the model's stop ids; None where that was not kept."""


class AccuracySample(Frozen, frozen=True):
    """Next-token distributions of both arms on one held-out window, already compared."""

    window_id: str
    context_tokens: int
    positions: int
    top1_agreement: Fraction
    kl_nats: float
    """Mean KL(baseline || candidate) over the scored positions."""
    baseline_nll: float
    candidate_nll: float
    """Mean negative log-likelihood of the text itself; exp() of it is perplexity."""


class Admission(Frozen, frozen=True):
    """Whether a candidate window became a prompt, decided by main's own continuation alone."""

    case: str
    prompt_id: str
    domain: str
    tokens: int
    distinct_4gram: Fraction | None
    """Distinct 4-grams over all 4-grams of the continuation; None when it has fewer than 4 tokens."""
    admitted: bool


class Divergence(Frozen, frozen=True):
    """The first token at which the candidate's AR output leaves main's, and how close the two were."""

    case: str
    prompt_id: str
    position: int
    """Index into the generated tokens."""
    baseline_token: int | None
    """None when the baseline's output ends here."""
    candidate_token: int | None
    margin_nats: float | None
    """log p(baseline token) - log p(candidate token) under main; None when it was not measured."""
    worst_position: int | None = None
    """From ``position`` on: where main, after the candidate's own tokens, prefers another one the most."""
    worst_margin_nats: float | None = None
    """log p(main's choice there) - log p(candidate token) under main; None when it was not measured."""


class LaunchFailure(Frozen, frozen=True):
    stage: LaunchStage
    kind: Literal["exit", "timeout", "protocol", "engine_error", "spawn"]
    detail: str
    """One sentence, already redacted and bounded."""
    stderr_tail: str = ""


class EngineReport(Frozen, frozen=True):
    """Effective configuration, as the worker echoed it after loading."""

    commit_sha: str
    device: str
    dtype: str
    torch_version: str
    proposals: int
    """Draft tokens per round that the depth policy starts from."""
    block_size: int
    depth_policy: str
    overrides: dict[str, str]
    """Engine environment overrides in force; empty in the served configuration."""
    target_sha256: str
    draft_sha256: str | None
    tokenizer_sha256: str | None
    threads: int
    weights_bytes: int


class Fitness(Frozen, frozen=True):
    """The machine just before or just after a launch, as the manager read it. None: not known here."""

    probe_s: float | None = None
    """Time that the control probe took."""
    load_average: float | None = None
    """Over the last minute, all cores together."""
    steal_pct: float | None = None
    """CPU time that the host gave to others over the launch, in percent of all cores; None before it."""
    foreign_cpu_pct: float | None = None
    """CPU time over the launch that neither its worker nor the manager used, in percent of all cores; None
    before it."""
    cpu_mhz: float | None = None
    gpu_sm_mhz: int | None = None
    gpu_memory_mhz: int | None = None
    gpu_celsius: int | None = None
    gpu_watts: float | None = None
    gpu_throttle: tuple[str, ...] | None = None
    """Reasons for which the driver holds the clocks down; empty when it does not."""
    gpu_foreign_processes: int | None = None
    """Processes that compute on the GPU and were not started by this run."""


class Launch(Frozen, frozen=True):
    """One worker process, from start to stop."""

    launch: int
    arm: Arm
    case: str
    """Case name, or ``admission:MODEL``, ``accuracy`` or ``divergence``."""
    quad: int
    slot: int
    started_s: float
    """Seconds since the run began."""
    duration_s: float
    engine: EngineReport | None = None
    failure: LaunchFailure | None = None
    before: Fitness | None = None
    after: Fitness | None = None


class Machine(Frozen, frozen=True):
    """What makes one machine another than its neighbour, as far as a measurement is concerned."""

    hostname_sha256: str
    cpu: str
    cores: int
    gpu: str | None = None
    driver: str | None = None


class Environment(Frozen, frozen=True):
    """The machine a run was made on."""

    hostname_sha256: str
    os: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int
    gpu: str | None = None
    driver: str | None = None
    load_average: tuple[float, float, float] | None = None
    steal_pct: float | None = None
    bandwidth_bytes_s: float | None = None
    """Fastest rate at which this machine reads memory: measured on a CPU, from the data sheet on a GPU."""


class Settled(Frozen, frozen=True):
    """Why a run needed no more measuring, and what was therefore not run."""

    gate: str
    """The gate that failed."""
    not_run: tuple[str, ...]
    """Cases that were never started, and ``accuracy`` where it was not scored."""


class HarnessResult(Frozen, frozen=True):
    """Everything one run saw. Judgements are recomputed from it and never stored in it."""

    schema_version: int
    plan: RunPlan
    seed: int
    prompt_seed: int
    environment: Environment
    launches: tuple[Launch, ...]
    samples: tuple[Sample, ...]
    accuracy: tuple[AccuracySample, ...]
    duration_s: float
    admissions: tuple[Admission, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    error: str | None = None
    """A fault of our own that ended the run early: infrastructure, never a candidate's."""
    settled: Settled | None = None
    """Set where the run ended before its plan because its outcome could not change any more."""
    between_builds: dict[str, float] = {}
    """Variance (squared log units) by which builds of one source differ on an axis, from calibration."""
    models: dict[str, ModelHashes] = {}
    """What was handed to the workers, by name; empty where that was not kept."""


class Interval(Frozen, frozen=True):
    low: float
    high: float


class Measurement(Frozen, frozen=True):
    """A metric of one arm over its samples."""

    name: str
    unit: str
    arm: Arm
    value: float
    n: int
    interval: Interval | None = None
    """None when there are too few samples for one."""


class Comparison(Frozen, frozen=True):
    """Candidate against baseline on one axis."""

    name: str
    unit: str
    baseline: float
    candidate: float
    ratio: float
    """candidate / baseline, from the paired estimate where pairs exist."""
    interval: Interval | None
    """Two-sided, at the policy's confidence, as if this look had been the only one."""
    pairs: int
    """Pairs of launches; for counts per round, prompts."""
    quads: int = 0
    """Quads that the pairs stand in; 0 for counts per round."""
    bounds: Interval | None = None
    """Two-sided bounds that hold at all looks together: tiers are earned by these."""
    floor_bounds: Interval | None = None
    """One-sided bounds that hold at all looks together: floors and guards are judged by these."""
    look: int = 1
    """The look that was reached, from 1."""
    looks: int = 1
    sign_flip_p: float | None = None
    """Two-sided exact sign-flip probability over quads; None without quads."""
    mean_ratio: float | None = None
    """Ratio by the ordinary mean of pairs."""
    quad_ratio: float | None = None
    """Ratio by the mean of quads."""
    unstable: bool = False
    """The estimates disagree by more than half an interval: a few launches carry the result."""
    order_effect: float | None = None
    """Relative change of a rate from running second in a pair, whichever arm it is."""
    smallest_effect: float | None = None
    """Relative effect that would have been told from zero with a probability of 80 %."""


class GateResult(Frozen, frozen=True):
    """One must-pass check. NOT_RUN is never drawn as pass or fail."""

    name: str
    state: GateState
    observed: str
    """What was seen, with its unit; empty when nothing was."""
    bar: str
    reason: str
    """A sentence: axis, two numbers and the bar; for NOT_RUN, why it did not run."""
    undecided: bool = False
    """NOT_RUN although measured: the interval lies on both sides of the bar."""


def _refuse_non_finite(value: Any, path: str = "$") -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} is {value}: NaN and infinity never enter a record")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")


def encode_json(value: Any) -> bytes:
    """Canonical JSON of a struct (sorted keys, UTF-8). Raises ValueError on NaN or infinity."""
    plain = msgspec.to_builtins(value)
    _refuse_non_finite(plain)
    return msgspec.json.encode(plain, order="sorted")
