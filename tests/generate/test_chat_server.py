"""A server that writes variations: what is asked, what is believed, and what is never lost."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_edits
from cfaug.editing.edit_prompts import read_prompts
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.label_guard import LabelGuard
from cfaug.editing.protocols import VariationModel, VariationRequest
from cfaug.generate.captions import edit_captions
from cfaug.generate.chat_asking import ChatServer, ChatSettings
from cfaug.generate.failures import Attempt
from cfaug.generate.job import Job, generate
from cfaug.generate.recipe import Recipe, RunSettings, ShardSettings
from cfaug.generate.server_requests import ask_at_once
from tests.editing.perturbing import photo_of
from tests.generate.chatting import caption_of, says, serving, variations
from tests.generate.tiny import contents

[ADJECTIVE] = read_prompts("examples", ["adjective"])
QUICK = ChatSettings(retries=2, backoff=0.001, timeout=60)


def requests(*captions, count=3):
    return [VariationRequest(text, ADJECTIVE, count, i) for i, text in enumerate(captions)]


def model(server, **settings):
    settings = {"settings": QUICK, **settings}
    return ChatServer(server.url, "tiny", **settings)


def good(number, body):
    return variations(f"a red {caption_of(body)}", f"a blue {caption_of(body)}", "a", "b")


def test_a_question_has_the_prompt_the_schema_and_a_seed(monkeypatch):
    monkeypatch.setenv("OWN_KEY", " secret ")
    with serving(good) as server:
        asked = model(server, settings=replace(QUICK, key_variable="OWN_KEY"))
        assert isinstance(asked, VariationModel)
        first, second = asked.vary(requests("a dog", "a cat"))
    assert first.texts == ("a red a dog", "a blue a dog", "a")
    assert second.texts[0] == "a red a cat"
    by_caption = {caption_of(body): (path, headers, body) for path, headers, body in server.asked}
    path, headers, body = by_caption["a cat"]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["seed"], body["temperature"]) == ("tiny", 1, 0.7)
    assert body["messages"][0]["content"].startswith(ADJECTIVE.say("a cat"))
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["variations"]["items"] == {"type": "string"}
    said = str(asked.describe())
    assert "tiny" in said
    assert "secret" not in said
    assert server.url not in said


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (says("Sure! Here are some: a red dog"), "no JSON"),
        (says('["a red dog"]'), "wrong JSON"),
        (says('{"variations": "a red dog"}'), "wrong JSON"),
        (says('{"variations": [1]}'), "wrong JSON"),
        (says('{"variations": [" "]}'), "empty answer"),
        (says(""), "empty answer"),
        (says(None), "empty answer"),
        (says('{"variations": ["a red', finish_reason="length"), "answer cut off"),
        ((200, {"choices": []}), "no chat answer"),
        ((200, b"<html>"), "no chat answer"),
        ((200, [1]), "no chat answer"),
        (says("[" * 100_000), "no JSON"),
        (says('{"variations": ["half a character: \\ud800"]}'), "wrong JSON"),
        (says('{"variations": ["a \\u0000 cat"]}'), "wrong JSON"),
        (says("\ud800 is no answer"), "no JSON"),
        ((200, {"choices": [{"message": {"content": None, "refusal": "No."}}]}), "refused"),
        ((200, b"x" * (4 * 2**20 + 9)), "no chat answer"),
    ],
)
def test_an_invalid_answer_is_asked_for_again_and_then_counted(answer, problem):
    def one_is_good(number, body):
        return good(number, body) if caption_of(body) == "a cat" else answer

    with serving(one_is_good) as server:
        dog, cat = model(server, attempts=2).vary(requests("a dog", "a cat"))
    assert cat.texts
    assert (dog.texts, dog.problem) == ((), problem)
    assert len(dog.extra["answer"]) <= 200
    dog.extra["answer"].encode()  # it can be written
    first, second = (body for _, _, body in server.asked if caption_of(body) == "a dog")
    assert f"That was not valid ({problem})" in second["messages"][-1]["content"]
    assert first["seed"] != second["seed"]


@pytest.mark.parametrize(
    "answers",
    [
        [says("no"), says('```json\n{"variations": ["a red dog"]}\n```')],
        [says('<think>{"variations": [1]}?</think>\n\n{"variations": ["a red dog"]}')],
        [(503, b"busy"), (429, b"", ("Retry-After", "0.01")), variations("a red dog")],
    ],
    ids=["another attempt, and a fence", "thoughts", "what passes"],
)
def test_the_answer_is_found_in_the_end(answers):
    with serving(lambda number, body: answers[number]) as server:
        [dog] = model(server).vary(requests("a dog"))
    assert dog.texts == ("a red dog",)
    assert len(server.asked) == len(answers)


def test_answers_are_kept_by_content(tmp_path):
    with serving(good) as server:
        asked = model(server, cache=str(tmp_path))
        before = asked.vary(requests("a dog", "a cat"))
        assert model(server, cache=str(tmp_path)).vary(requests("a dog", "a cat")) == before
        assert len(server.asked) == 2
        model(server, cache=str(tmp_path)).vary(requests("a dog", count=2))
        warmer = replace(QUICK, temperature=1.0)
        model(server, cache=str(tmp_path), settings=warmer).vary(requests("a dog"))
        assert len(server.asked) == 4


def test_a_server_that_is_gone_is_not_asked_about_one_photo_after_the_other():
    examples = Attempt({i: photo_of("dog", f"a dog {i}", f"k{i}") for i in range(40)}, {})
    with serving(lambda number, body: None) as server:
        editor = InstructedEdit(model(server, concurrency=2), kinds=["adjective"])
        with pytest.raises(UserError, match="0 answers are kept: start the server"):
            edit_captions(examples, editor)
        assert len(server.asked) <= 2 * (QUICK.retries + 1)


def test_an_address_that_is_no_chat_server_s_is_named():
    captions = [f"a dog {n}" for n in range(3)]
    with (
        serving(lambda number, body: (200, b"<html>Welcome to nginx!")) as server,
        pytest.raises(UserError, match="does not answer as a chat server does, but: <html>Welco"),
    ):
        model(server, attempts=1).vary(requests(*captions))


def test_an_error_whose_explanation_does_not_arrive_loses_no_other_answer(tmp_path):
    """A server that announces a long explanation, and hangs up within it."""

    def answer(number, body):
        if "cat" in caption_of(body):
            return 500, b"half", ("Content-Length", "9")
        return good(number, body)

    with serving(answer) as server:
        asked = model(server, cache=str(tmp_path), concurrency=1)
        with pytest.raises(UserError, match=r"HTTP 500.*2 answers are kept"):
            asked.vary(requests("a dog", "a cow", "a cat"))


def test_one_question_that_is_refused_is_counted_and_every_one_is_an_error(tmp_path):
    def some(number, body):
        return (400, b"too rude") if "cat" in caption_of(body) else good(number, body)

    with serving(some) as server:
        for _ in range(2):  # the second time, all that is left to ask is what is refused
            dog, cat = model(server, cache=str(tmp_path)).vary(requests("a dog", "a cat"))
            assert dog.texts
            assert (cat.problem, cat.extra) == ("refused", {"answer": "HTTP 400 too rude"})
    with (
        serving(lambda number, body: (400, b"response_format")) as server,
        pytest.raises(UserError, match=r"refuses every question: HTTP 400 resp.*json_object"),
    ):
        model(server).vary(requests("a dog", "a cat"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"no key"), "refuses all questions: HTTP 401 no key"),
        ((404, b"no such model"), "refuses all questions: HTTP 404"),
        ((307, b"", ("Location", "http://127.0.0.1:9/")), "redirects .307., and the key is not"),
    ],
)
def test_a_wrong_address_key_or_model_stops_at_once(answer, said):
    with serving(lambda number, body: answer) as server:
        with pytest.raises(UserError, match=said):
            model(server, concurrency=1).vary(requests("a dog", "a cat"))
        assert len(server.asked) == 1


def test_an_answer_that_takes_too_long_is_given_up():
    def slow(number, body):
        time.sleep(0.4)
        return good(number, body)

    impatient = replace(QUICK, timeout=0.05, retries=0)
    with serving(slow) as server, pytest.raises(UserError, match=r"timed out|too long"):
        model(server, settings=impatient).vary(requests("a dog"))


def test_a_question_has_one_deadline_for_all_its_retries():
    def busy(number, body):
        return 503, b"later", ("Retry-After", "30")

    impatient = replace(QUICK, timeout=0.5, retries=5)
    began = time.monotonic()
    with serving(busy) as server, pytest.raises(UserError, match=r"no pause of 30 seconds"):
        model(server, settings=impatient).vary(requests("a dog"))
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8000", "base_url=localhost:8000 should be such as"),
        ("file:///etc/passwd", "should be such as http"),
        ("http://[::1/v1", "should be such as http"),
        ("http://localhost:99999/v1", "should be such as http"),
        ("http://localhost:8000/vé", "should be such as http"),
        ("http://local host/v1", "should be such as http"),
        ("http://me:secret@host/v1", "holds a name, a password or a query"),
    ],
)
def test_an_invalid_address_is_named(url, said):
    with pytest.raises(UserError, match=said) as raised:
        ChatServer(url, "tiny")
    assert "secret" not in str(raised.value)


def test_a_key_that_is_missing_or_invalid_is_named(monkeypatch):
    monkeypatch.delenv("OWN_KEY", raising=False)
    with pytest.raises(UserError, match="OWN_KEY, which should hold the server's key, is missing"):
        ChatSettings("OWN_KEY").headers()
    monkeypatch.setenv("OWN_KEY", "zwölf\nsecrets")
    with pytest.raises(UserError, match="OWN_KEY holds an invalid key") as raised:
        ChatSettings("OWN_KEY").headers()
    assert "secrets" not in str(raised.value)


def test_the_form_may_be_asked_for_in_words_alone():
    with serving(good) as server:
        for structured in ("none", "json_object"):
            model(server, settings=replace(QUICK, structured=structured)).vary(requests("a dog"))
    plain, some = (body for _, _, body in server.asked)
    assert "response_format" not in plain
    assert some["response_format"] == {"type": "json_object"}


def test_a_run_whose_server_dies_resumes_and_writes_the_bytes_of_one_that_did_not(tmp_path):
    examples = [photo_of("dog", f"a dog and {n} cats", f"k{n}") for n in range(6)]
    alive = {"left": 7}

    def answer(number, body):
        if alive["left"] == 0:
            return None
        alive["left"] -= 1
        text = caption_of(body)
        return variations(f"an old {text}", text, text.replace("dog", "cow"))

    def job(server, folder):
        asked = ChatServer(
            server.url, "tiny", str(tmp_path / f"{folder}-cache"), concurrency=1,
            settings=ChatSettings(retries=1, backoff=0.001),
        )  # fmt: skip
        editor = InstructedEdit(
            asked, kinds=["adjective", "subject"], guards={"label": LabelGuard()}
        )
        return Job(
            tmp_path / folder, Recipe("lance", editor), lambda: examples,
            run=RunSettings(stage="captions"), shards=ShardSettings(sets_per_shard=3),
        )  # fmt: skip

    with serving(answer) as server:
        with pytest.raises(
            UserError, match=r"7 answers are kept in .*cut-cache: start the server, and run"
        ):
            generate(job(server, "cut"))
        before = len(server.asked)
        alive["left"] = 100
        summary = generate(job(server, "cut"))
        # Seven of the twelve questions were answered before, and none of them is asked again.
        assert len(server.asked) - before == 5
    with serving(answer) as server:
        generate(job(server, "whole"))
    assert contents(tmp_path / "cut" / "captions") == contents(tmp_path / "whole" / "captions")
    assert (summary.sets, summary.failures) == (6, ())
    edited = [of_example for n in (0, 1) for _, of_example in read_edits(tmp_path / "cut", n)]
    lost = Counter(rejected.reason for of_example in edited for rejected in of_example.rejected)
    assert lost == {"same caption": 12, "duplicated": 12, "changes the label": 6}


def test_an_answer_whose_connection_breaks_in_the_middle_is_asked_for_again():
    def broken(number, body):
        code, answer = good(number, body)
        return (code, answer) if number else (code, b'{"choices": [', ("Content-Length", "400"))

    with serving(broken) as server:
        (answered,) = model(server, attempts=1).vary(requests("a dog"))
    assert answered.texts == ("a red a dog", "a blue a dog", "a")


def test_an_interruption_does_not_wait_for_answers_that_are_under_way():
    go_on = threading.Event()

    def ask(question):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert go_on.wait(300)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask_at_once([1], ask, 2)
    go_on.set()
    assert time.monotonic() - start < 100
