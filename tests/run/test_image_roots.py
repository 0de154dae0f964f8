from __future__ import annotations

from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.planning.sources import permitted_roots


def test_roots_are_absolute_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    assert permitted_roots({"image_roots": ["photos"]}) == (tmp_path / "photos",)
    assert permitted_roots({"image_roots": []}) == permitted_roots({}) == ()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("/", "should be a list of folders"),
        ([1], "should be a list"),
        (["/none"], "no folder /none"),
    ],
)
def test_what_is_no_list_of_folders_is_refused(named: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        permitted_roots({"image_roots": named})
