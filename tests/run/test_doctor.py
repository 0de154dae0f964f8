"""What ``cfaug doctor`` says of a machine without network, accounts and data, and of one with."""

from __future__ import annotations

from cfaug.run import doctor


def lines(capsys, *words):
    assert doctor.main(words) == 0
    return " ".join(capsys.readouterr().out.split())


def test_what_is_missing_comes_with_its_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    said = lines(capsys, f"paths.data={tmp_path / 'data'}")
    assert "SLURM no" in said
    assert "wandb login no logger=wandb -> wandb login" in said
    assert "imagenet" in said
    assert "-> lay them there: docs/data.md, docs/sets.md" in said
    assert "hf download NAME, of " in said
    assert "openai/clip-vit-base-patch32" in said


def test_what_is_there_asks_for_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    said = lines(capsys, f"paths.data={tmp_path}")
    assert "SLURM yes" in said
    assert "wandb login yes logger=wandb Services" not in said
    assert "cifar10 yes for benchmark/" in said


def test_another_argument_is_refused(capsys):
    assert doctor.main(["data=x"]) == 2
    assert "takes paths.data=FOLDER alone" in capsys.readouterr().err
