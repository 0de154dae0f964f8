"""What every table and figure promises, for each of ``conf/table``.

Without data it names what is missing and the commands that make it; partial, it prints what there
is; whatever it prints can be written in every format and read back from its JSON.
"""

from __future__ import annotations

from contextlib import chdir, suppress

import pytest
from markupsafe import escape

from cfaug.planning.build import build
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Document, read_document, to_csv, to_latex, to_markdown
from cfaug.report.paper_tables import write_tables_page
from tests.files_of_settings import settings_files
from tests.paper_tables import table_node

pytestmark = pytest.mark.slow  # each is composed

TABLES = sorted(file.stem for file in settings_files("table") if file.stem[0] != "_")
AMONG_OURS = ("compositional",)
"""Tables with printed numbers of others beside ours in one part."""

SETTINGS = {"wise_ft": ["table.experiment=demo"]}
"""{table: settings that it needs}."""


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """Leave the folder of the tests, which may hold shards that a table reads."""
    with chdir(tmp_path_factory.mktemp("elsewhere")):
        yield


@pytest.fixture(scope="module", params=TABLES)
def asked(request, tmp_path_factory) -> tuple[str, dict, Runs]:
    """A table's settings, and a folder without runs."""
    name = request.param
    node = table_node(name, *SETTINGS.get(name, []))
    return name, node, Runs(tmp_path_factory.mktemp("table") / "runs")


def make_partial(asked) -> Document:
    _, node, runs = asked
    return build({**node, "partial": True}).build(runs)


@pytest.fixture(scope="module")
def made(asked) -> Document | None:
    """A partial table without any runs, ``None`` if it needs at least one."""
    with suppress(MissingError):
        return make_partial(asked)
    return None


def test_a_partial_table_that_needs_a_run_does_not_advise_to_be_partial(asked, made):
    if made is None:
        with pytest.raises(MissingError, match=r"make them with\n  ") as caught:
            make_partial(asked)
        assert "table.partial" not in str(caught.value)


def test_without_data_it_names_what_makes_them(asked):
    name, node, runs = asked
    table = build(node)
    with pytest.raises(MissingError, match=r"lacks:\n  (.|\n)*make them with\n  ") as caught:
        table.build(runs)
    said = str(caught.value)
    assert f"table={name}" in said
    assert all(command in said for command in table.commands)
    assert said.endswith("table.partial=true")


def test_partial_it_has_no_number_of_ours(asked, made):
    if made is not None and asked[0] not in AMONG_OURS:
        ours = [row for part in made.parts if part.ours for row in part.rows]
        assert not any(cell.numbers for _, cells in ours for cell in cells)
        assert not made.parts or "paper" in to_markdown(made).lower()


def test_partial_it_reads_back_and_is_written_in_every_format(asked, made, tmp_path):
    if made is None:
        return
    file = tmp_path / f"{asked[0]}.json"
    file.write_text(made.to_json(), encoding="utf-8")
    again = read_document(file)
    assert again.to_json() == made.to_json()
    for write in (to_csv, to_latex, to_markdown):
        assert write(again) == write(made)
    assert escape(made.title) in write_tables_page(tmp_path).read_text(encoding="utf-8")


def test_its_columns_fit_its_rows_and_every_number_is_finite_or_said(made):
    for part in made.parts if made else ():
        assert len(part.header) == len(part.labels) + len(part.columns)
        if part.groups:
            assert sum(span for _, span in part.groups) == len(part.columns)
        for labels, cells in part.rows:
            assert (len(labels), len(cells)) == (len(part.labels), len(part.columns))
            assert all(cell.text == cell.text.strip() for cell in cells)
            assert not any("nan" in cell.text.lower().split() for cell in cells)
