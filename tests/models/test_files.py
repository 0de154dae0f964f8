"""A checkpoint's folder is whole or not there, and a disk that refuses is named as such."""

from __future__ import annotations

import errno
import resource

import pytest
import torch
from safetensors.torch import save_file

from cfaug.models.checkpoints import replace_checkpoint


@pytest.fixture
def small_files():
    """Files beyond 1,000 bytes are refused by the system, as all are by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def by_safetensors(folder) -> None:
    save_file({"weight": torch.zeros(4000)}, folder / "model.safetensors")


def by_python(folder) -> None:
    (folder / "config.json").write_text("x" * 4000)


@pytest.mark.parametrize("write", [by_safetensors, by_python])
def test_what_the_disk_refuses_is_an_error_of_the_disk(tmp_path, small_files, write):
    folder = tmp_path / "checkpoint"
    with replace_checkpoint(folder) as fresh:
        (fresh / "old").touch()
    with (
        pytest.raises(OSError, match="File too large") as raised,
        replace_checkpoint(folder) as fresh,
    ):
        write(fresh)
    assert raised.value.errno == errno.EFBIG
    assert raised.value.filename == str(folder)
    assert [file.name for file in folder.iterdir()] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_model_card_outlives_the_weights_that_it_was_written_for(tmp_path):
    folder = tmp_path / "checkpoint"
    for name in ("README.md", "other"):
        with replace_checkpoint(folder) as fresh:
            assert list(fresh.iterdir()) == []
            (fresh / name).write_text(name)
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "README.md": "README.md", "other": "other",
    }  # fmt: skip


def test_other_errors_of_safetensors_are_themselves(tmp_path):
    from safetensors import SafetensorError

    with pytest.raises(SafetensorError, match="odd"), replace_checkpoint(tmp_path / "checkpoint"):
        raise SafetensorError("odd")
