"""People's answers about images, as ``annotate=read`` writes them: the majority for each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import NAMED_AT_ONCE, ErrorCollector


@dataclass(frozen=True)
class HumanAnswers:
    """The majority answer for each image.

    Attributes:
        file: the file that was read.
        labels: {``<set>_<member>``: its majority answer}; images without a majority are absent.
        disputed: number of images without a majority.
        hash: sha256 of the file.
    """

    file: Path
    labels: Mapping[str, str]
    disputed: int
    hash: str

    def check_images(self, names: Collection[str], source: str) -> None:
        """Refuse answers about images that are not in a source.

        Raises:
            UserError: naming some of them.
        """
        known = set(names)
        strangers = [name for name in self.labels if name not in known]
        if strangers:
            raise UserError(
                f"{self.file} has answers about {len(strangers)} images that are not in {source} "
                f"({', '.join(strangers[:NAMED_AT_ONCE])}): is it the file of another source?"
            )


def read_human_answers(file: str | Path, choices: Collection[str]) -> HumanAnswers:
    """Read people's answers, such as those of ``labels.jsonl``.

    Args:
        file: a jsonl, csv or tsv file with ``key``, ``member``, ``annotator`` and ``label``.
        choices: the valid answers.

    Raises:
        UserError: naming file and line of an answer that is invalid, or of one person's second
            answer about an image; or if there are no answers.
    """
    path = Path(file).expanduser().resolve()
    given: dict[str, dict[str, str]] = {}
    errors = ErrorCollector()
    for where, record in list_records(path):
        with errors.collect():
            missing = [n for n in ("key", "member", "label") if record.get(n) in (None, "")]
            if missing:
                raise UserError(f"{where} lacks {', '.join(missing)}")
            label = str(record["label"])
            if label not in choices:
                raise UserError(
                    f"{where}: label={label[:40]!r} is invalid: choose from {', '.join(choices)}"
                )
            own = given.setdefault(f"{record['key']}_{record['member']}", {})
            who = str(record.get("annotator") or f"line {len(own)}")
            if who in own:
                raise UserError(f"{where}: {who[:40]!r} is duplicated for this image")
            own[who] = label
    errors.report()
    if not given:
        raise UserError(f"{path} has no answers")
    labels = {}
    for name, answers in given.items():
        label, count = Counter(answers.values()).most_common(1)[0]
        if 2 * count > len(answers):
            labels[name] = label
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return HumanAnswers(path, labels, len(given) - len(labels), digest)
