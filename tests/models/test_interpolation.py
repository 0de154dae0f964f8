"""Models between two checkpoints: WiSE-FT's formula, number by number, and its exact ends."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.models.lora import Ends, Interpolated, interpolate
from cfaug.models.specs import HFClip
from tests.models import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("ends")
    return [tiny.save_clip(root / str(seed), seed=seed) for seed in (0, 1)]


@pytest.fixture
def ends(folders):
    return Ends(*(HFClip(str(folder)) for folder in folders), owner="run")


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("factor", [0.0, 0.25, 0.5, 1.0])
def test_every_weight_is_the_formula_of_both_files(folders, ends, factor):
    """In float64, from the files themselves; the log of the scale like any other weight."""
    first, last = (load_file(folder / "model.safetensors") for folder in folders)
    interpolated = {k.removeprefix("model."): v for k, v in state(ends.load(factor)).items()}
    assert "logit_scale" in interpolated
    assert set(first) <= set(interpolated)
    for name in first:
        expected = (1 - factor) * first[name].double() + factor * last[name].double()
        torch.testing.assert_close(interpolated[name].double(), expected, atol=1e-7, rtol=1e-6)
        if factor in (0.0, 1.0):
            assert torch.equal(interpolated[name], (last if factor else first)[name])


def test_factors_may_come_in_any_order_and_the_model_is_loaded_once(folders, monkeypatch):
    loads = []
    load = HFClip.load
    monkeypatch.setattr(HFClip, "load", lambda self, p=None: loads.append(p) or load(self, p))
    ends = Ends(*(HFClip(str(folder)) for folder in folders), owner="run")
    ahead = [state(ends.load(factor)) for factor in (0.5, 1.0, 0.0, 0.5)]
    assert len(loads) == 2  # either end
    for name, tensor in ahead[0].items():
        assert torch.equal(tensor, ahead[3][name])
    assert any(not torch.equal(ahead[1][name], ahead[2][name]) for name in ahead[1])


def test_another_protocol_has_the_same_weights(ends):
    encoder, matcher = (
        state(Interpolated(ends, 0.3).load(protocol)) for protocol in (DualEncoder, Matcher)
    )
    for name, tensor in encoder.items():
        assert torch.equal(matcher[f"encoder.{name}"], tensor)


def test_a_result_is_one_of_the_end_itself_or_of_both_and_the_factor(folders, ends):
    first, last = (HFClip(str(folder)) for folder in folders)
    for factor, end in ((0.0, first), (1.0, last)):
        spec = Interpolated(ends, factor)
        assert (spec.identity(), spec.weights_hash(), spec.settings_hash()) == (
            end.identity(), end.weights_hash(), end.settings_hash(),
        )  # fmt: skip
    names = {Interpolated(ends, f).identity() for f in (0.0, 0.25, 0.5, 1.0)}
    names.add(Interpolated(Ends(last, first, "run"), 0.25).identity())
    assert len(names) == 5
    assert Interpolated(ends, 0.5).weights_hash() != Interpolated(ends, 0.25).weights_hash()
    assert Interpolated(ends, 0.5).provides == HFClip.provides


def test_whole_numbers_are_those_of_the_nearer_end():
    first, last = torch.tensor([1, 2]), torch.tensor([5, 8])
    assert interpolate(first, last, 0.25).tolist() == [1, 2]
    assert interpolate(first, last, 0.75).tolist() == [5, 8]


def test_half_precision_is_interpolated_in_single():
    first, last = torch.tensor([1.0]).half(), torch.tensor([1.001]).half()
    middle = interpolate(first, last, 0.5)
    assert middle.dtype == torch.float32
    assert middle.item() == (first.float().item() + last.float().item()) / 2


def test_checkpoints_of_other_shapes_are_refused(folders, tmp_path):
    other = tiny.save_clip(tmp_path / "other", positions=20)
    ends = Ends(HFClip(str(other)), HFClip(str(folders[0])), owner="runs/a/b/seed=1")
    with pytest.raises(UserError, match=r"runs/a/b/seed=1: .*position_embedding.* is .*20"):
        ends.load(0.5)
