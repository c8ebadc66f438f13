"""Calibration metrics against the recorded ones."""

from __future__ import annotations

import pytest

from engine.decoding.confidence import AUC_BINS, CLAMP, ECE_BINS, calibration, pooled, truncated_length
from tests.engine.parity import read_json, read_tensors

CONFIDENCE = read_json("confidence")


def close(value, expected, tolerance):
    if expected is None:
        return value is None
    return value is not None and abs(value - expected) <= tolerance


def test_bins_and_clamp_are_those_of_the_reference():
    recorded = CONFIDENCE["ece_bins"], CONFIDENCE["auroc_bins"], CONFIDENCE["clamp"]
    assert recorded == (ECE_BINS, AUC_BINS, CLAMP)


@pytest.mark.parametrize("dataset", CONFIDENCE["datasets"], ids=lambda dataset: dataset["id"])
def test_calibration_equals_the_recorded_one(dataset):
    tensors = read_tensors("confidence")
    name = dataset["id"]
    rows = calibration(tensors[f"{name}.z"], tensors[f"{name}.accept"], tensors[f"{name}.length"])
    for row, expected in zip(rows, dataset["per_position"], strict=True):
        assert row.weight == expected["total_weight"]
        assert close(row.ece, expected["ece"], 1e-7)
        assert close(row.auc, expected["auc"], 1e-12)
        assert close(row.brier, expected["brier"], 1e-7)
        assert close(row.pred_mean, expected["pred_mean"], 1e-7)
        assert close(row.target_mean, expected["target_mean"], 1e-12)
    summary, expected = pooled(rows), dataset["summary"]
    assert close(summary.ece, expected["ece_mean"], 1e-7)
    assert close(summary.auc, expected["auc_mean"], 1e-12)
    assert close(summary.brier, expected["brier_mean"], 1e-7)
    assert close(summary.pred_mean, expected["pred_mean"], 1e-7)
    assert close(summary.target_mean, expected["target_mean"], 1e-12)


def test_no_rounds_give_no_calibration_rather_than_zero():
    tensors = read_tensors("confidence")
    rows = calibration(tensors["edges.z"], tensors["edges.accept"], tensors["edges.length"] * 0)
    assert all(row.weight == 0 and row.ece is None and row.auc is None for row in rows)
    assert pooled(rows).ece is None


@pytest.mark.parametrize(
    ("confidence", "threshold", "kept"),
    [
        ([0.9, 0.2, 0.9], 0.3, 1),
        ([0.1, 0.9], 0.3, 0),
        ([0.3, 0.3], 0.3, 2),
        ([0.0, 0.0], 0.0, 2),
        ([], 0.5, 0),
    ],
)
def test_proposals_end_before_the_first_one_below_the_threshold(confidence, threshold, kept):
    assert truncated_length(confidence, threshold) == kept
