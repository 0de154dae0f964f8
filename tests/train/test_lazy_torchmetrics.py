"""Lightning's imports do not bring all of torchmetrics, and whoever asks for more gets it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run_python(code: str) -> None:
    """Run lines in an interpreter that has imported nothing."""
    subprocess.run([sys.executable, "-c", code], check=True)


HEAVY = "('torchmetrics.functional', 'torchvision', 'transformers', 'scipy.signal')"


@pytest.mark.parametrize(
    "code",
    [
        f"import lightning.pytorch, sys; assert not {{*{HEAVY}}} & {{*sys.modules}}",
        "import torchmetrics, torchmetrics.text; from torchmetrics import *; Accuracy",
        "import torchmetrics; assert torchmetrics.functional.accuracy; "
        "assert type(torchmetrics) is type(torchmetrics.text)",
        "import torchmetrics; Metric = torchmetrics.Metric; from torchmetrics import Recall, "
        "Metric as same; assert Metric is same; torchmetrics.MetricCollection([Recall('binary')])",
        "import inspect, torchmetrics; assert 'aggregation' in inspect.getsource(torchmetrics); "
        "assert torchmetrics.__version__ == __import__('importlib.metadata').metadata.version("
        "'torchmetrics')",
    ],
    ids=["light", "everything", "a part", "one class", "source and version"],
)
def test_torchmetrics_by_parts(code):
    run_python(f"import cfaug.train; {code}")


def test_an_unknown_name_is_refused():
    run_python(
        "import cfaug.train, torchmetrics; assert not hasattr(torchmetrics, 'NoSuchMetric'); "
        "assert hasattr(torchmetrics, 'Accuracy')"
    )
