from __future__ import annotations

import pytest

from cfaug.cfmm.question_writing import NO_ANSWER, OTHERWISE, AnswererJudge, QuestionJudge
from cfaug.core.errors import RejectedError
from cfaug.core.pixels import decode_image
from cfaug.core.protocols import Answerer
from cfaug.core.questions import AskedQuestion, Question
from cfaug.data.sources.question_sets.rows import EmbeddedImage
from cfaug.models.task_specs import VisionLanguage
from tests.data.question_files import encode_image
from tests.models.tiny_vlm import save_llava


def image_of(data):
    return EmbeddedImage("a photo", lambda: data)


def asked(text, options, answer):
    return AskedQuestion("new", "counterfactual", text, options, answer)


@pytest.mark.slow
def test_questions_that_a_model_answers_otherwise_are_rejected(tmp_path):
    judge = AnswererJudge(VisionLanguage(name_or_path=str(save_llava(tmp_path))), "cpu")
    assert isinstance(judge, QuestionJudge)
    texts, options = ("If it rained?", "If it snowed?", "If so?"), ("red", "a long blue line")
    photo = encode_image(200)
    model = judge.model.load(Answerer)
    likeliest = []
    for text in texts:
        ((found,),) = model.answer([decode_image(photo, "")], [[Question(text, options)]])
        likeliest.append(0 if found.scores[0].mean_nll < found.scores[1].mean_nll else 1)
    same = [asked(text, options, one) for text, one in zip(texts, likeliest, strict=True)]
    other = [asked(text, options, 1 - one) for text, one in zip(texts, likeliest, strict=True)]
    assert judge.judge(image_of(photo), [*same, *other]) == [""] * 3 + [OTHERWISE] * 3
    assert judge.judge(image_of(photo), []) == []
    long = asked("If " + "so " * 600, options, 0)
    assert judge.judge(image_of(photo), [long, same[0]]) == [NO_ANSWER, ""]
    with pytest.raises(RejectedError) as caught:
        judge.judge(image_of(b"broken"), same)
    assert caught.value.reason == "photo_broken"
    assert "sha256:" in judge.describe()["question_judge"]
