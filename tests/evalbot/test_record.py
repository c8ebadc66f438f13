"""Records: written whole, read strictly, judged again to the same byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalbot import by_round, publish
from evalbot import record as records
from evalbot.config import policy_sha256
from evalbot.errors import BadRequest, InfraError
from evalbot.rescore import rescore
from evalbot.score import deciding, score
from evalbot.types import RECORD_VERSION, ArmIdentity, Facts, Identity, Record, Request
from harness.schema import HarnessResult, Policy, encode_json
from tests.evalbot.results import Behaviour, run


def record_of(*runs: HarnessResult, facts: Facts | None = None) -> Record:
    policy, known = Policy(), facts or Facts()
    analysis = deciding(runs, policy)
    may, why = publish.judge(known, ArmIdentity(), runs, "2024-05-01T10:00:00Z", "")
    return Record(
        schema_version=RECORD_VERSION, created_at="2024-05-01T10:00:00Z", evalbot_version="0.1.0",
        request=Request(head="work", base="main", plan="fake", seed=7),
        identity=Identity(head_sha="a" * 40, base_sha="b" * 40, merge_tree_sha="c" * 40),
        policy=policy, facts=known, runs=runs, measurements=analysis.measurements,
        comparisons=analysis.comparisons, gates=analysis.gates, verdict=score(runs, policy, known),
        sandbox="none", acceptance=by_round.acceptance(runs), definitions=by_round.DEFINITIONS,
        publishable=may, publishable_reason=why,
    )  # fmt: skip


def altered(record: Record, change: Any) -> bytes:
    plain = json.loads(encode_json(record))
    change(plain)
    return json.dumps(plain).encode()


def test_a_record_is_judged_again_to_the_same_byte(tmp_path: Path) -> None:
    slow = Behaviour(dspark_tok_s=40.0)
    for runs in (
        (run(),),
        (run(candidate=Behaviour(dspark_tok_s=55.0)),),
        (run(candidate=slow), run(candidate=slow, seed=1)),
    ):
        first = record_of(*runs)
        records.write(first, tmp_path / "record.json")
        again = records.read(tmp_path / "record.json")
        assert encode_json(rescore(again)) == encode_json(first.verdict)


SLOW = Behaviour(dspark_tok_s=40.0)


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param((run(candidate=SLOW), run(candidate=SLOW)), id="the same run twice"),
        pytest.param((run(), run(candidate=Behaviour(dspark_tok_s=55.0), seed=1)), id="the better of two"),
        pytest.param(tuple(run(candidate=SLOW, seed=seed) for seed in range(3)), id="three"),
        pytest.param((run(candidate=SLOW), run(candidate=SLOW, seed=1, quads=5)), id="another plan"),
    ],
)
def test_a_second_run_that_is_no_fresh_confirmation_is_refused(runs: tuple[HarnessResult, ...]) -> None:
    with pytest.raises(BadRequest, match="no fresh confirmation of the first"):
        rescore(record_of(*runs))


def test_a_run_that_takes_other_differences_between_builds_is_refused() -> None:
    widened = msgspec.structs.replace(run(), between_builds={"chat:dspark": 0.01})
    with pytest.raises(BadRequest, match="other differences between builds than its calibration"):
        rescore(record_of(widened))


def test_a_record_without_runs_is_judged_again_too() -> None:
    record = record_of(facts=Facts(identical=True, set_aside=("harness/a.py",)))
    assert rescore(record).outcome == "none"


def test_a_changed_verdict_is_noticed(tmp_path: Path) -> None:
    def promote(plain: Any) -> None:
        plain["verdict"].update(outcome="improved", tier="XL", label="eval-dspark:XL")

    path = tmp_path / "record.json"
    path.write_bytes(altered(record_of(run()), promote))
    with pytest.raises(BadRequest, match=r"says eval-dspark:XL .* but its runs give eval-dspark:none"):
        rescore(records.read(path))


def test_a_changed_gate_is_noticed(tmp_path: Path) -> None:
    def pass_all(plain: Any) -> None:
        plain["gates"][0]["observed"] = "everything"

    path = tmp_path / "record.json"
    path.write_bytes(altered(record_of(run()), pass_all))
    with pytest.raises(BadRequest, match="are not those that its runs give"):
        rescore(records.read(path))


def test_changed_samples_change_the_verdict(tmp_path: Path) -> None:
    def slower(plain: Any) -> None:
        for sample in plain["runs"][0]["samples"]:
            if sample["arm"] == "candidate":
                sample["token_ids"][-1] += 1

    path = tmp_path / "record.json"
    path.write_bytes(altered(record_of(run()), slower))
    with pytest.raises(BadRequest, match="was changed"):
        rescore(records.read(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plain: plain.update(schema_version=99), "has schema version 99, this evalbot reads 1"),
        (lambda plain: plain.pop("verdict"), "missing required field `verdict`"),
        (lambda plain: plain.update(extra=1), "unknown field `extra`"),
        (lambda plain: plain["verdict"].update(outcome="great"), "Invalid enum value"),
    ],
)
def test_a_malformed_record_is_refused_with_the_place_of_the_fault(
    tmp_path: Path, change: Any, said: str
) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(altered(record_of(run()), change))
    with pytest.raises(BadRequest, match=said):
        records.read(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema_version": null}'])
def test_what_is_no_record_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(BadRequest, match=r"is not a record of an evaluation"):
        records.read(path)


def test_a_missing_record_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read: No such file"):
        records.read(tmp_path / "nothing.json")


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InfraError, match="No space left on device"):
        records.write(record_of(run()), tmp_path / "record.json")
    assert list(tmp_path.glob("*.json*")) == []
    assert list(tmp_path.glob(".*")) == []


def test_the_schema_describes_the_record() -> None:
    schema = records.json_schema()
    properties = schema["$defs"]["Record"]["properties"]
    assert {"schema_version", "identity", "verdict", "gates", "runs"} <= set(properties)
    assert msgspec.json.encode(schema)


def test_a_policy_that_is_not_the_identitys_is_noticed() -> None:
    record = record_of(run())
    bound = msgspec.structs.replace(record.identity, policy_sha256=policy_sha256(Policy()))
    honest = msgspec.structs.replace(record, identity=bound)
    assert rescore(honest) == record.verdict
    easier = msgspec.structs.replace(honest, policy=Policy(confidence=0.5))
    with pytest.raises(BadRequest, match="policy of the record"):
        rescore(easier)
