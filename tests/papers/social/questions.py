"""The paper's question to people, as the configuration has it."""

from __future__ import annotations

from cfaug.annotation.question import AnnotationQuestion
from cfaug.planning.build import build
from tests.files_of_settings import read_settings

ERRORS: AnnotationQuestion = build(read_settings("annotate/question/social_errors"))
