"""What is typed reaches the settings as it was meant, or is refused with what to type instead."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.planning.training import TrainSettings
from cfaug.run.arguments import read
from cfaug.run.compose import compose_jobs
from cfaug.run.generate import GenerateSettings
from tests.properties import examples

CONF = Path(__file__).parents[2] / "conf"
PARSER = OverridesParser.create()
TEXTS = st.text("ab1 ()[]{}#&;!~`<>^=\"'/.,:+-_%*@?|äß日", max_size=12).map(
    lambda text: f"x{text.rstrip()}."
)


def composed(*words: str, key: str = "arm") -> list[Any]:
    """Return one setting of every job of a command line."""
    line = read(words)
    jobs = compose_jobs(
        CONF, "train", line.overrides, multirun=line.multirun, command=TrainSettings
    )
    return [config[key] for config, _ in jobs]


@given(TEXTS)
def test_a_text_is_read_whole_whatever_its_signs(text):
    text = text.replace(",", ", ")  # without a space it may part the values of a sweep
    (override,) = read([f"arm={text}"]).overrides
    assert PARSER.parse_override(override).value() == text


@given(texts=st.lists(TEXTS, min_size=2, max_size=3))
def test_the_texts_of_a_sweep_file_are_read_whole(tmp_path_factory, texts):
    file = tmp_path_factory.mktemp("sweep") / "grid.yaml"
    file.write_text(yaml.safe_dump({"method": "grid", "parameters": {"arm": {"values": texts}}}))
    (override,) = read([f"sweep={file}", "-m"]).overrides
    found = PARSER.parse_override(override).value().list
    assert [getattr(one, "text", one) for one in found] == texts


@given(st.lists(TEXTS.filter(lambda text: not set(text) & set("[](){}'\"$,")), min_size=1))
def test_the_texts_of_a_list_are_read_whole(texts):
    (override,) = read([f"runs=[{','.join(texts)}]"]).overrides
    assert PARSER.parse_override(override).value() == texts


def test_a_call_in_brackets_needs_no_quotes():
    assert composed("data.shuffle=window(8)", key="data")[0]["shuffle"] == "window(8)"
    assert composed("-m", "arm=tree(2)", "seed=range(0,2)") == ["tree(2)"] * 2
    assert composed("-m", "arm=choice(a,b)") == ["a", "b"]
    assert composed("arm=/data/Büro (1)") == ["/data/Büro (1)"]
    assert composed("arm=(x\\") == ["(x\\"]
    assert composed(r"arm=window\(8\)", 'name="a"') == ["window(8)"]  # Hydra's own ways


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["-m", "arm=tree(2),it's,c"], ["tree(2)", "it's", "c"]),
        (["-m", "arm=rnage(0,3)"], ["rnage(0,3)"]),
        (["arm=a,b(c)"], ["a,b(c)"]),
        (["arm=[a"], ["[a"]),
        (['arm="a'], ['"a']),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_type(typed, meant):
    with pytest.raises(UserError, match=r"cannot read arm=.* in double quotes") as refused:
        composed(*typed)
    (fix,) = shlex.split(str(refused.value).rsplit("single ones: ", 1)[1])
    assert composed(*typed[:-1], fix) == meant


@pytest.mark.parametrize("typed", ["arm", "=3", "a b=3"])
def test_what_is_no_setting_is_refused(typed):
    with pytest.raises(UserError, match="is not a setting: write key=value"):
        composed(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("modl=tiny_clip", "did you mean model?"),
        ("data.cf_rato=1", "did you mean data.cf_ratio?"),
        ("zzzzzz=1", "--help lists them all"),
        ("~zzzzzz", "--help lists them all"),
        ("scale=foo", "shapescapes"),
        ("data=foo", "coco_real"),
    ],
)
def test_a_mistyped_key_or_choice_names_what_there_is(typed, said):
    with pytest.raises(UserError) as refused:
        composed(typed)
    assert said in str(refused.value)
    assert "search path" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("model=open_clip model.architecture=RN50 optim.lrr=1",
         "no setting is called 'optim.lrr': did you mean optim.lr?"),
        ("model.architecture=RN50 model=open_clip trainer.max_step=1", "'trainer.max_step'"),
        ("tuning=lora tuning.lora.r=4 tuning.lora.alhpa=1", "did you mean tuning.lora.alpha?"),
        ("tuning=lora tuning.lora.r=4 sede=1", "no setting is called 'sede': did you mean seed?"),
        ("tuning.lora.r=4", "as long as tuning is null: choose tuning="),
        ("optim.learning_rate=1", "did you mean optim.lr?"),
        ("trainer.epochs=3", "did you mean trainer.max_epochs?"),
        ("data.num_workers=3", "did you mean data.workers?"),
        ("accumulate_grad_batches=4", "did you mean trainer.accumulate_grad_batches?"),
        ("lr=4", "did you mean optim.lr?"),
        ("limit=4", "'limit': generate.py takes it; --help lists them all"),
        ("recipe=cfmm", "'recipe': generate.py takes it; --help lists them all"),
        ("benchmark.data=x", "evaluate.py takes it; --help lists them all"),
        ("weights=zoo:clip-0", "'weights': evaluate.py takes it"),
        ("xyzzy=4", "'xyzzy': --help lists them all"),
        ("model.max_length=4", "+model.max_length=4 adds it"),
        ("paths=5 paths.runs=x", "paths=5: paths has settings of its own"),
        ("model=tiny_clip model=nope", "model=nope: "),
        ("data=5", "data=5: choose from coco_all"),
        ("data=[1,2]", "data=[1,2]: choose from coco_all"),
        ("model=null", "model=null: choose from asked_entailer"),
        ("model=[]", "model=[]: choose from asked_entailer"),
        ("trainer={}", "trainer={}: choose from default"),
        ("trainer=true", "trainer=true: choose from default"),
        ("tuning=5", "lora, lora_qkv, null"),
        ("~model", "~model: choose from asked_entailer"),
        ("~data.real", "data.real is missing"),
    ],
)  # fmt: skip
def test_the_word_at_fault_is_named_beside_the_groups_that_were_chosen(typed, said):
    with pytest.raises(UserError) as refused:
        composed(*typed.split())
    assert said in str(refused.value)
    assert "did you mean _" not in str(refused.value)
    assert "._" not in str(refused.value)


def test_null_leaves_a_group_as_it_is_where_nothing_is_chosen():
    assert composed("tuning=null", key="optim") == composed(key="optim")
    assert len(composed("-m", "tuning=null,lora", key="seed")) == 2


KEYS = [
    "name", "arm", "seed", "data", "model", "optim", "tuning", "loss", "trainer", "logger", "scale",
    "experiment", "paths", "data.world", "data.world.edits", "data.cf_ratio", "data.real",
    "model.name_or_path", "optim.lr", "optim.betas", "tuning.lora", "tuning.lora.r", "overwrite",
    "trainer.max_steps", "paths.runs", "hydra", "hydra.run", "preset", "preset.optim.lr", "nothing",
    "data.nothing", "world@data.world", "data._target_", "a.b.c",
]  # fmt: skip
VALUES = [
    "5", "1.5", "1e400", "-0", "null", "true", "no", "''", "[]", "{}", "[1,2]", "[a,[b]]", "{a:1}",
    "{_target_:os.system}", "lora", "paper", "folder", "???", "${seed}", "${nope}",
    "${oc.env:NOPE}", "${", "a b", "007", "日本", "tiny_clip", "range(0,2)", "choice()",
    "os.system",
]  # fmt: skip
WORDS = st.builds(
    lambda sign, key, value: f"{sign}{key}={value}",
    st.sampled_from(["", "", "", "+", "++", "~"]), st.sampled_from(KEYS), st.sampled_from(VALUES),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=3))
def test_whatever_is_typed_composes_or_is_a_sentence(words):
    try:
        found = composed(*words, key="seed")
    except UserError as refused:
        found = [len(str(refused))]
    assert [type(one) for one in found] == [int] * len(found)


def test_a_file_that_other_choices_bring_along_is_no_choice():
    with pytest.raises(UserError) as refused:
        compose_jobs(
            CONF, "generate", ["recipe=coco_cf/paper"], multirun=False, command=GenerateSettings
        )
    assert "a part of recipe=coco_cf zoo=paper: type these" in str(refused.value)
