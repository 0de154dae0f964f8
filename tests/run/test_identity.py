from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.run.identity import arm_slug, config_hash, identity

CONFIG = {
    "name": "main", "arm": None, "seed": 107,
    "data": {"cf_ratio": 0.6, "size": None, "seed": 108, "workers": 0, "real": "/a/photos"},
    "optim": {"lr": 0.001}, "paths": {"runs": "runs"}, "logger": {"kind": "csv"},
    "trainer": {"devices": 1, "max_steps": 5},
}  # fmt: skip


def _with(path: str, value: object) -> dict:
    group, _, key = path.partition(".")
    changed = {k: dict(v) if isinstance(v, dict) else v for k, v in CONFIG.items()}
    if key:
        changed.setdefault(group, {})[key] = value
    else:
        changed[group] = value
    return changed


@pytest.mark.parametrize(
    "path",
    ["paths.runs", "logger.kind", "data.workers", "trainer.devices", "name", "arm", "data.real"],
)
def test_where_and_how_fast_do_not_change_the_hash(path):
    assert config_hash(identity(CONFIG, {})) == config_hash(identity(_with(path, "other"), {}))


@pytest.mark.parametrize(
    "path", ["seed", "data.cf_ratio", "data.seed", "optim.lr", "trainer.max_steps"]
)
def test_what_changes_the_result_changes_the_hash(path):
    assert config_hash(identity(CONFIG, {})) != config_hash(identity(_with(path, 3), {}))


def test_content_is_part_of_the_hash():
    assert config_hash(identity(CONFIG, {"real": "aa"})) != config_hash(
        identity(CONFIG, {"real": "ab"})
    )


@given(st.permutations(["data.cf_ratio=0.6", "optim.lr=1e-3", "seed=107", "trainer.devices=2"]))
def test_slug_does_not_depend_on_the_order(overrides):
    assert arm_slug(overrides, CONFIG) == "cf_ratio=0.6,lr=0.001"


def test_slug_of_a_folder_and_of_a_named_arm():
    assert arm_slug(["data=folder", "data.real=/a/photos"], CONFIG) == "data=folder,real=photos"
    assert arm_slug(["arm=mine", "optim.lr=1"], {**CONFIG, "arm": "mine"}) == "mine"
    assert (
        arm_slug(["experiment=demo/real", "optim.lr=1"], {**CONFIG, "arm": "real"})
        == "real,lr=0.001"
    )
    assert arm_slug(["data.seed=3"], _with("data.seed", 3)) == "data.seed=3"
    words = ["hydra.searchpath=[file:///home/me/conf]", "optim.lr=1e-3"]  # --config-dir
    assert arm_slug(words, CONFIG) == "lr=0.001"
    assert "/" not in arm_slug(["model=a/b"], CONFIG)
    assert len(arm_slug([f"data.k{i}=123456" for i in range(40)], CONFIG)) <= 100
