"""Sets that people are asked about, as in the tests of the tool's annotation."""

from tests.annotation.conftest import index, items  # noqa: F401
from tests.annotation.test_findings import findings  # noqa: F401
from tests.annotation.test_question import grid  # noqa: F401
