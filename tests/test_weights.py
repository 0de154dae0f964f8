"""Weights: of the Hub, of adapters, and configurations that do not fit; parts of the world."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import load_file, save_file

from cfaug.core import weights
from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import check_numbers
from cfaug.core.weights import find_weights, sha256
from cfaug.core.worlds import is_questions, is_world, world_part
from cfaug.editing.causal_lm import CausalLM
from cfaug.editing.language_models import MaskedLM
from cfaug.models import lora as adapters
from cfaug.models.lora import ADAPTER, BASE, WEIGHTS, BaseModel
from cfaug.models.specs import HFClip, OpenClip
from tests.train import tiny_language

slow = pytest.mark.slow  # importing the Hub's HTTP client takes three seconds


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Return the cache of the Hub and a function that sets the Hub's address."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def set_port(port):
        address = f"http://127.0.0.1:{port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False
        )

    return tmp_path, set_port


@pytest.fixture
def mute_hub(hub, monkeypatch):
    """A Hub that takes the connection and never answers, and an empty cache beside it."""
    cache, set_port = hub
    with socket.create_server(("127.0.0.1", 0)) as server:
        set_port(server.getsockname()[1])
        monkeypatch.setattr(weights, "HUB_TIMEOUT_S", 0.2)
        yield cache


COMMITS = "1" * 40, "2" * 40


def find_questions(asked):
    """Return the requests that asked which commit the model is."""
    return [path for path in asked if path.startswith("/api/models") and "/tree/" not in path]


@contextmanager
def serving(files, asked):
    """Serve a model's files; every question about the model finds the next commit.

    Args:
        files: {name: content}.
        asked: a list to which the path of each request is added.
    """

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path, _, _ = self.path.partition("?")
            asked.append(path)
            if "/tree/" in path:
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": f"{number:040d}"}
                    for number, (name, content) in enumerate(files.items())
                ]
                self.say(json.dumps(tree).encode())
            elif path.startswith("/api/models/a/b"):
                commit = COMMITS[len(find_questions(asked)) - 1]
                self.say(json.dumps({"id": "a/b", "sha": commit, "siblings": []}).encode())
            elif (name := path.rpartition("/")[2]) in files and "/resolve/" in path:
                commit = path.split("/resolve/")[1].partition("/")[0]
                self.say(files[name], {"X-Repo-Commit": commit, "ETag": f'"{name}"'})
            else:
                self.send_error(404)

        def say(self, content, headers=None):
            self.send_response(200)
            for key, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@slow
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_the_hub_is_asked_once_which_commit_it_is(hub, name):
    cache, set_port = hub
    files, asked = {"config.json": b"{}", name: b"weights"}, []
    with serving(files, asked) as port:
        set_port(port)
        folder = weights.resolve("a/b")
        assert folder.name == COMMITS[0], asked
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == files
        assert len(find_questions(asked)) == 1
        assert sum("/tree/" in path for path in asked) == 1
        assert not any(COMMITS[1] in path for path in asked)
    assert (cache / "models--a--b" / "refs" / "main").read_text() == COMMITS[0]
    # The Hub is gone by now, and so is its answer to what "main" is.
    assert weights.resolve("a/b") == weights.resolve("a/b", fetch=False) == folder


@slow
@pytest.mark.timeout(60)  # without a limit of time it would wait for ever
def test_a_hub_that_never_answers_is_not_waited_for(mute_hub):
    with pytest.raises(UserError, match=r"a/b: no such folder here.*timed out.*hf download a/b"):
        weights.resolve("a/b")


@slow
def test_what_was_fetched_before_is_used_without_it(mute_hub):
    home, commit = mute_hub / "models--a--b", "0" * 40
    folder = home / "snapshots" / commit
    folder.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    (folder / "model.safetensors").write_bytes(b"")
    assert weights.resolve("a/b") == folder


@pytest.mark.parametrize("name", ["epoch_5.pt", "logs/epoch_5.pt", "model.safetensors"])
def test_a_file_that_is_missing_is_not_asked_of_the_hub(name):
    with pytest.raises(UserError, match=f"{name}: there is no such file"):
        weights.resolve(name)


@pytest.mark.parametrize("part", ["ood", "ood@photo", "real_test"])
def test_a_part_is_told_from_a_folder(part):
    assert is_world(f"shapescapes:{part}")
    assert world_part(f"shapescapes:{part}") == part


@pytest.mark.parametrize("folder", ["shapescapes", "/data/shapescapes:ood", "photos"])
def test_a_folder_is_no_part(folder):
    assert not is_world(folder)
    assert not is_questions(folder)


def test_questions_about_the_world_are_no_part_of_its_pictures():
    assert is_questions("shapescapes_vqa:test@fog")
    assert world_part("shapescapes_vqa:test@fog") == "test@fog"
    assert not is_world("shapescapes_vqa:test")
    assert is_world("shapescapes_compositional:choice@photo")
    assert world_part("shapescapes_compositional:choice@photo") == "compositional_choice@photo"
    assert not is_questions("shapescapes:ve_test")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A base model and an adapter on it that changes what it says."""
    folder = tmp_path_factory.mktemp("adapters")
    base = tiny_language.save_llama(folder / "base")
    spec = CausalLM(str(base), device="cpu")
    model = spec.model
    names = [name for name, _ in model.named_modules() if name.endswith(("q_proj", "v_proj"))]
    adapters.inject(model, names, 2, 4, 0.0, seed=1)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    (folder / "adapter").mkdir()
    adapters.save(model, folder / "adapter", BaseModel("base", None, spec.weights_hash()))
    adapters.merge(model)
    return folder, model


@pytest.fixture
def copy(shelf, tmp_path):
    shutil.copytree(shelf[0] / "adapter", tmp_path / "adapter")
    return tmp_path / "adapter"


def load_adapter(shelf, folder):
    spec = CausalLM(str(shelf[0] / "base"), device="cpu")
    model = spec.model
    adapters.load(model, folder, find_weights(spec.folder()))
    return model


def test_a_saved_adapter_gives_the_model_it_was_saved_of(shelf, copy):
    ids = torch.tensor([[3, 4, 5, 6]])
    model = load_adapter(shelf, copy)
    torch.testing.assert_close(model(input_ids=ids).logits, shelf[1](input_ids=ids).logits)
    plain = CausalLM(str(shelf[0] / "base"), device="cpu").model(input_ids=ids).logits
    assert (model(input_ids=ids).logits - plain).abs().max() > 0.1
    assert model.state_dict().keys() == shelf[1].state_dict().keys()


def test_saving_is_the_same_bytes_whatever_the_hash_seed(shelf, copy):
    about = json.loads((copy / ADAPTER).read_text())
    assert about["target_modules"] == sorted(about["target_modules"])
    assert about["base_model_name_or_path"] == "base"


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_dora": True}, "use_dora=True: only plain LoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "peft_type='IA3'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"some_new_kind": 1}, "some_new_kind=1"),
        ({"r": "8"}, "r='8' should be a number"),
        ({"r": 1.5}, "whole number"),
        ({"lora_alpha": 0}, "lora_alpha=0 should"),
    ],
)
def test_another_kind_of_adapter_is_refused(shelf, copy, changes, words):
    edit(copy / ADAPTER, **changes)
    with pytest.raises(UserError, match=words):
        load_adapter(shelf, copy)


def test_the_base_model_is_compared(shelf, copy):
    edit(copy / BASE, sha256="0" * 64)
    with pytest.raises(UserError, match=r"was tuned on 'base' with weights sha256:0.*give the"):
        load_adapter(shelf, copy)
    (copy / BASE).unlink()  # PEFT itself writes none
    load_adapter(shelf, copy)


def test_weights_of_another_model_are_refused(shelf, copy):
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / WEIGHTS)
    name = sorted(tensors)[0]
    for wrong, words in (
        ({**tensors, name: tensors[name][:, :-1].contiguous()}, "of another shape"),
        ({k: v for k, v in tensors.items() if k != name}, "is missing"),
        ({**tensors, f"{adapters.PREFIX}x.lora_A.weight": torch.ones(1)}, "adapts 'x'"),
        ({**tensors, name: tensors[name] / 0}, "not numbers"),
    ):
        save_file(wrong, copy / WEIGHTS)
        with pytest.raises(UserError, match=words):
            load_adapter(shelf, copy)
    (copy / WEIGHTS).write_bytes(b"no tensors")
    with pytest.raises(UserError, match="cannot be read"):
        load_adapter(shelf, copy)
    (copy / ADAPTER).write_text("[]")
    with pytest.raises(UserError, match="not a configuration of an adapter"):
        load_adapter(shelf, copy)


def test_a_folder_of_an_adapter_is_no_model_by_itself(copy):
    with pytest.raises(UserError, match="adapter"):
        _ = CausalLM(str(copy), device="cpu").model


SECONDS = 300
"""Of a busy machine; unchecked, these end in no hour, or in no memory."""


def changed(saved_models, tmp_path, kind, path, value):
    folder = shutil.copytree(saved_models[kind], tmp_path / kind)
    file = folder / ("open_clip_config.json" if kind == "open_clip" else "config.json")
    content = json.loads(file.read_text())
    *outer, last = path.split(".")
    node = content["model_cfg"] if kind == "open_clip" else content
    for name in outer:
        node = node[name]
    node[last] = value
    file.write_text(json.dumps(content))
    return folder


def load_changed(kind, folder):
    if kind == "open_clip":
        return OpenClip(str(folder)).load()
    return MaskedLM(str(folder)).model if kind == "text" else HFClip(str(folder)).load()


REFUSALS = r"absurd|asks for a model of|context_length="
ABSURD = [
    ("clip", "text_config.hidden_size", 10**9),
    ("clip", "text_config.hidden_size", 4096),
    ("clip", "text_config.num_hidden_layers", 10**9),
    ("clip", "text_config.vocab_size", 10**12),
    ("clip", "text_config.vocab_size", 9 * 10**6),
    ("clip", "vision_config.image_size", 10**6),
    ("clip", "projection_dim", 10**9),
    ("clip", "num_labels", 10**9),
    ("dual", "vision_config.depths", [10**9, 1]),
    ("dual", "vision_config.depths", [60, 60]),
    ("dual", "text_config.max_position_embeddings", 10**10),
    ("text", "hidden_size", 10**9),
    ("text", "num_hidden_layers", 10**9),
    ("open_clip", "embed_dim", 10**9),
    ("open_clip", "vision_cfg.layers", 10**9),
    ("open_clip", "vision_cfg.image_size", 10**6),
    ("open_clip", "text_cfg.vocab_size", 10**12),
    ("open_clip", "text_cfg.width", 65536),
    ("open_clip", "text_cfg.context_length", 10**9),
]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("kind", "path", "value"), ABSURD)
def test_absurd_dimensions_end_in_a_sentence(saved_models, tmp_path, kind, path, value):
    folder = changed(saved_models, tmp_path, kind, path, value)
    with pytest.raises(UserError, match=REFUSALS):
        load_changed(kind, folder)


def test_pickled_weights_are_counted_too(saved_models, tmp_path):
    folder = changed(saved_models, tmp_path, "clip", "text_config.hidden_size", 10**9)
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="absurd"):
        load_changed("clip", folder)


def test_numbers_within_reason_pass(tmp_path):
    config = {"rope_theta": 1e30, "num_hidden_layers": 24, "tied_layers": True, "x": {"y": [7e9]}}
    check_numbers(config, tmp_path, (1, 1))
    for bad in ({"layers": 65}, {"x": [{"vocab_size": -(10**8)}]}, {"depths": [40, 40]}):
        with pytest.raises(UserError, match="absurd"):
            check_numbers(bad, tmp_path, (1, 1))
    check_numbers({"layers": 65, "vocab_size": 10**8}, tmp_path, (65, 10**9))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights_of_a_language_model_are_named(saved_models, tmp_path, value):
    folder = shutil.copytree(saved_models["text"], tmp_path / "text")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("dense.weight"))
    weights[name][0, 0] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"dense\.weight holds"):
        load_changed("text", folder)


def test_an_image_size_that_is_absurd_is_refused(saved_models, tmp_path):
    folder = shutil.copytree(saved_models["clip"], tmp_path / "clip")
    for file in ("preprocessor_config.json", "processor_config.json"):
        if (folder / file).exists():
            content = json.loads((folder / file).read_text())
            node = content.get("image_processor", content)
            node["size"] = {"shortest_edge": 10**6}
            node["crop_size"] = {"height": 10**6, "width": 10**6}
            (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match="1000000"):
        load_changed("clip", folder)


def test_a_runs_folder_in_place_of_its_checkpoint_says_what_to_name(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(UserError, match=r"it holds: checkpoint$"):
        find_weights(tmp_path)
    (tmp_path / "checkpoint" / "model.safetensors").touch()
    with pytest.raises(UserError, match=rf": name {tmp_path / 'checkpoint'}$"):
        find_weights(tmp_path)


def test_settled_files_are_hashed_once_and_again_after_a_change(tmp_path, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"before")
    first = sha256([file])
    file.write_bytes(b"behind")  # of the same length, and in the same instant
    assert sha256([file]) != first
    monkeypatch.setattr(weights, "SETTLED_S", -1)
    second = sha256([file])
    with monkeypatch.context() as patch:
        patch.setattr(weights.hashlib, "sha256", None)
        assert sha256([file]) == second
    file.write_bytes(b"before")
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 1))
    assert sha256([file]) == first
