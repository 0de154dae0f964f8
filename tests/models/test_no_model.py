"""What stands in place of a model for benchmarks that ask none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Classifier, DualEncoder, NoModel
from cfaug.evaluation.context import loadable_as
from cfaug.models.specs import NoModelSpec


def test_a_benchmark_that_asks_no_model_can_be_asked_of_any():
    question = SimpleNamespace(needs=NoModel)
    for provides in (NoModelSpec.provides, (DualEncoder,), (Classifier,)):
        assert loadable_as(question, provides) is NoModel
    assert loadable_as(SimpleNamespace(needs=DualEncoder), NoModelSpec.provides) is None


def test_it_is_always_the_same_and_cannot_be_trained():
    spec = NoModelSpec()
    assert spec.at("checkpoint").on_this_machine().identity() == spec.identity()
    assert isinstance(spec.load(), NoModel)
    assert spec.parameters() is None
    with pytest.raises(UserError, match="there is no model to train"):
        spec.check_trainable()
