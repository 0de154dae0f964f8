"""Grids of captions: the paper's come out as printed; of a user's own every mistake is named."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit
from cfaug.data.captions import right_articles
from cfaug.editing import caption_grids as grid_files
from cfaug.editing.caption_grids import AttributeGrid, fill, placeholders, read_grid, shipped_grids
from tests.records import example

TABLE_5 = {
    "race_gender": (1044, 12, 1_252_800),
    "religion_gender": (1044, 8, 835_200),
    "race_religion": (1044, 24, 2_505_600),
    "physical_gender": (1044, 28, 2_923_200),
    "physical_race": (1044, 84, 8_769_600),
    "physical_religion": (1044, 56, 5_846_400),
    "trait_race_gender": (252, 12, 302_400),
    "trait_religion_gender": (252, 8, 201_600),
    "trait_race_religion": (252, 24, 604_800),
}
"""Sets, captions a set and images (100 a caption) as the paper prints them."""

OWN = {
    "subject_type": "job",
    "subjects": ["nurse", "umpire"],
    "prefixes": ["", "A photo of"],
    "template": "{prefix} a {age} {gender} {subject} {place}",
    "attributes": {
        "age": ["old", "young"],
        "gender": {"male": "man", "female": "woman"},
        "place": ["indoors", "outdoors"],
    },
}


@pytest.fixture
def user_grid(tmp_path):
    """Write a user's own grid, with changes (``None`` takes a key away), and return its file."""

    def write(text=None, **changes):
        grid = {key: value for key, value in {**OWN, **changes}.items() if value is not None}
        file = tmp_path / "mine.yaml"
        content = yaml.safe_dump(grid, sort_keys=False) if text is None else text
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write


def edited(grid, group=None):
    """Return the proposal of every example, or of a group's."""
    chosen = [row for row in grid.examples() if group in (None, row.group)]
    assert isinstance(AttributeGrid(), Editor)
    results = AttributeGrid().edit(chosen)
    return [proposal for result in results for proposal in result.proposals]


def test_every_product_of_table_5_and_the_sums_of_the_paper():
    """Section 2.1 and the notes' item 8: 7,020 sets and 232,416 captions; every grid is there."""
    grids = {name: read_grid(name, keep_duplicates=True) for name in TABLE_5}
    for name, grid in grids.items():
        assert (grid.sets, grid.members, 100 * grid.captions) == TABLE_5[name]
        assert len({row.key for row in grid.examples()}) == grid.sets
    assert sum(grid.sets for grid in grids.values()) == 7_020
    assert sum(grid.captions for grid in grids.values()) == 232_416
    assert set(shipped_grids()) == {*TABLE_5, "shapescapes"}


def test_duplicates_and_misprints_of_the_list_are_left_out_and_named():
    printed = read_grid("race_gender", keep_duplicates=True).subjects
    grid = read_grid("race_gender")
    assert (len(printed), len(set(printed)), len({s.lower() for s in printed})) == (261, 244, 181)
    assert "optician custodian" in printed
    assert not {"optician custodian", "Optician"} & set(grid.subjects)
    assert {"optician", "custodian"} <= set(grid.subjects)
    assert len(grid.subjects) == len({s.lower() for s in grid.subjects}) == 181
    assert {s.lower() for s in grid.subjects} == (
        {s.lower() for s in printed} - {"optician custodian"} | {"custodian"}
    )
    assert grid.left_out.count("Actor") == 1
    assert len(grid.left_out) == 261 + 1 - 181
    assert "81 duplicated subjects are left out (data.keep_duplicates=true" in grid.line()
    assert ", Optician, " in grid.line()
    assert not read_grid("trait_race_gender").left_out


def test_captions_are_those_of_the_released_lists():
    """The form of the released lines: base first, lower-case article without a prefix."""
    barber = edited(read_grid("race_gender"), "barber")[0]
    assert barber.key == "race_gender_barber"
    assert barber.texts[:3] == (
        "a White male barber",
        "a White female barber",
        "a Black male barber",
    )
    assert [
        None if edit is None else (edit.kind, edit.before, edit.after) for edit in barber.edits
    ][:4] == [
        None,
        ("gender", "male", "female"),
        ("race", "White", "Black"),
        ("race_gender", "White male", "Black female"),
    ]
    photo = edited(read_grid("race_gender"), "attorney")[1]
    assert photo.key == "a_photo_of_race_gender_attorney"
    assert photo.texts[4] == "A photo of an Indian male attorney"
    assert photo.group == photo.example.label == "attorney"
    assert dict(photo.example.extra) | photo.details[4] == {
        "subject": "attorney", "subject_type": "occupation", "grid": "race_gender",
        "prefix": "A photo of", "neutral": "A photo of an attorney",
        "attributes": {"race": "Indian", "gender": "male"},
    }  # fmt: skip
    pilot = edited(read_grid("religion_gender"), "pilot")[0]
    assert pilot.texts[0] == "a male Christian pilot"  # Table 9's words, with their article
    assert pilot.details[1] == {"attributes": {"religion": "Christian", "gender": "female"}}
    kind = edited(read_grid("trait_race_religion"), "active")[0]
    assert kind.texts[0] == "an active White Christian"
    assert kind.example.extra["neutral"] == "an active person"
    skinny = edited(read_grid("physical_race"), "electrician")[0]
    assert skinny.texts[5 * 6] == "a skinny White electrician"


def test_the_grid_of_the_embedded_world_speaks_its_language():
    from cfaug.worlds.shapescapes.language import parse

    for proposal in edited(read_grid("shapescapes")):
        assert parse(proposal.example.extra["neutral"]).subject == proposal.group
        for text, known in zip(proposal.texts, proposal.details, strict=True):
            said = parse(text)
            attributes = known["attributes"]
            assert (said.subject, said.colour, said.background) == (
                proposal.group, attributes["colour"], attributes["background"],
            )  # fmt: skip


def test_a_grid_of_ones_own(user_grid):
    """Any number of attributes, values that captions say in other words, a neutral prompt."""
    grid = read_grid(user_grid())
    assert (grid.name, grid.sets, grid.members) == ("mine", 4, 8)
    first, second = edited(grid)[:2]
    assert first.key == "mine_nurse"
    assert second.key == "a_photo_of_mine_nurse"
    assert first.texts[:3] == (
        "an old man nurse indoors", "an old man nurse outdoors", "an old woman nurse indoors",
    )  # fmt: skip
    assert first.details[2] == {
        "attributes": {"age": "old", "gender": "female", "place": "indoors"}
    }
    assert first.edits[7] == Edit("age_gender_place", "old male indoors", "young female outdoors")
    assert first.example.extra["neutral"] == "a nurse"
    assert edited(grid)[3].example.extra["neutral"] == "A photo of an umpire"
    other = read_grid(user_grid(neutral="{prefix} one {subject}", name="jobs"))
    assert edited(other)[0].example.extra["neutral"] == "one nurse"
    assert edited(other)[0].key == "jobs_nurse"


def test_lists_lie_beside_a_grid_or_are_shipped(user_grid, tmp_path):
    (tmp_path / "jobs.txt").write_text("# mine\nnurse\n\nbus  driver  # two words\nNurse\n")
    grid = read_grid(
        user_grid(
            subjects="jobs.txt", attributes={"race": "races"}, template="{prefix} {race} {subject}"
        )
    )
    assert grid.subjects == ("nurse", "bus driver")
    assert grid.left_out == ("Nurse",)
    assert list(grid.attributes["race"]) == [
        "White", "Black", "Indian", "Asian", "Middle Eastern", "Latino",
    ]  # fmt: skip
    kept = read_grid(user_grid(subjects="jobs.txt"), keep_duplicates=True)
    assert kept.subjects == ("nurse", "bus driver", "Nurse")
    assert [row.key for row in kept.examples()][-2:] == ["mine_nurse_2", "a_photo_of_mine_nurse_2"]


def test_subjects_that_letters_do_not_tell_apart_have_keys_of_their_own(user_grid):
    grid = read_grid(
        user_grid(subjects=["C++ developer", "C developer", "医生", "护士", "nurse", "nurse 2"])
    )
    keys = [row.key for row in grid.examples()]
    assert len(set(keys)) == len(keys) == 12
    assert "mine_c_developer" in keys
    assert [row.group for row in grid.examples()][4] == "医生"


MISTAKES = {
    "the key 'subjcts' is unknown; a grid has name,": {"subjcts": ["nurse"]},
    "'template' is missing": {"template": None},
    "subjects is empty": {"subjects": []},
    "subjects should be a text, not 3: put it in quotes": {"subjects": [3]},
    "subjects should be a text, not {'a': 'b'}": {"subjects": {"a": "b"}},
    "there is no list 'jobs': write the values as a list": {"subjects": "jobs"},
    "there is no list '../../pyproject'": {"subjects": "../../pyproject"},
    "missing.txt cannot be read: No such file": {"subjects": "missing.txt"},
    "'a {nurse}' has braces": {"subjects": ["a {nurse}"]},
    "subjects is longer than 200 characters": {"subjects": ["n" * 201]},
    "the captions of 'a bc' and 'ab c' are both 'nurse abc'": {
        "attributes": {"x": ["a", "ab"], "y": ["bc", "c"]}, "template": "{prefix} {subject} {x}{y}",
    },
    "cannot be printed": {"subjects": ["nurse\x1b[31m"]},
    "prefixes should be a list": {"prefixes": "A photo of"},
    "prefixes: 'a photo of' is duplicated": {"prefixes": ["a photo of", "A photo of"]},
    "attributes should map names to values, not be ['race']": {"attributes": ["race"]},
    "attributes is empty": {"attributes": {}},
    "attributes: the name 'Race' is invalid": {"attributes": {"Race": ["a", "b"]}},
    "attributes: the name 'subject' is taken": {"attributes": {"subject": ["a", "b"]}},
    "attributes: race is empty": {"attributes": {"race": []}},
    "attributes: race: 'x' is duplicated": {"attributes": {"race": {"White": "x", "Black": "X"}}},
    "attributes: race should be a text, not None": {"attributes": {"race": ["White", None]}},
    "template 'a {age} {gender} {place}' has age, gender, place in braces; it must have each of "
    "prefix, subject, age, gender, place once": {"template": "a {age} {gender} {place}"},
    "{subject} {subject}": {"template": "{prefix} a {age} {gender} {subject} {subject} {place}"},
    "braces hold a name": {"template": "{prefix} {age:>999999999} {gender} {subject} {place}"},
    "neutral 'a {age} {subject}' has age, subject": {"neutral": "a {age} {subject}"},
    "'M\u00e9tis' is duplicated": {"attributes": {"x": ["M\u00e9tis", "Me\u0301tis"]}},
    "the neutral prompt 'an old nurse' is the caption of 'old'": {
        "neutral": "{prefix} an old {subject}", "attributes": {"age": ["young", "old"]},
        "template": "{prefix} a {age} {subject}",
    },
    "the name 'My grid' is invalid": {"name": "My grid"},
    "a grid of one text has no counterfactual": {
        "attributes": {"age": ["old"]}, "template": "{prefix} a {age} {subject}",
    },
    "10 a x 10 b x 10 c x 10 d x 10 e x 10 f x 10 g x 10 h x 10 i are 1,000,000,000 captions a set":
    {
        "attributes": {letter: [f"v{i}" for i in range(10)] for letter in "abcdefghi"},
        "template": "{prefix} {subject} {a}{b}{c}{d}{e}{f}{g}{h}{i}",
    },
    "500 prefixes x 2,500 subjects are more than 1,000,000 sets": {
        "prefixes": [f"p {i}" for i in range(500)], "subjects": [f"s {i}" for i in range(2_500)],
    },
}  # fmt: skip


@pytest.mark.parametrize("words", MISTAKES)
def test_every_mistake_is_named(user_grid, words):
    file = user_grid(**MISTAKES[words])
    with pytest.raises(UserError) as error:
        read_grid(file)
    assert words in str(error.value)
    assert "mine.yaml" in str(error.value) or "missing.txt" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "should map names to values, not be None"),
        ("[a, b]", r"should map names to values, not be \['a', 'b'\]"),
        ("a: [b", "is not valid YAML"),
        ("subjects: [a]\nsubjects: [b]", "the key 'subjects' is duplicated"),
        ("attributes: {race: [a, b], race: [c, d]}", "the key 'race' is duplicated"),
        ("subjects: !!python/object/apply:os.system ['touch /tmp/x']", "could not determine a con"),
        ("subjects: !include /etc/passwd", "could not determine a constructor"),
        ("subjects: &a [*a]", "is not valid YAML|should be a text"),
        ("name: 2024-99-99", "is not valid YAML"),
        ("subject_type: \xe9".encode("latin-1"), "is not UTF-8.*save it as UTF-8"),
        ("name: a\x00b", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_grid(user_grid, text, words):
    with pytest.raises(UserError, match=words):
        read_grid(user_grid(text))


@pytest.mark.timeout(60)  # read, it would end in no year
def test_a_bomb_of_aliases_is_refused_at_once(user_grid):
    lines = [
        "a0: &a0 [x, x]",
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)),
    ]
    rest = "subject_type: job\nsubjects: *a29\ntemplate: a\nattributes: {a: [b]}"
    with pytest.raises(UserError, match="aliases"):
        read_grid(user_grid("\n".join([*lines, rest])))
    nested = user_grid(f"subjects: {'[' * 40}x{']' * 40}\n{rest.replace('subjects: *a29', '')}")
    with pytest.raises(UserError, match="subjects should be a text, not"):
        read_grid(nested)


def test_what_is_too_large_or_no_file_is_not_read(user_grid, tmp_path, monkeypatch):
    monkeypatch.setattr(grid_files, "MOST_BYTES", 100)
    with pytest.raises(UserError, match="is larger than 100 bytes"):
        read_grid(user_grid())
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_grid(str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match=r"choose from physical_gender.*or name a file, FILE.yaml"):
        read_grid("race-gender")


@pytest.mark.parametrize(
    "wrong",
    [
        example("a photo of a doctor", "a"),
        example("a {race} doctor", "a"),
        example("a {race} doctor", "a", extra={"attributes": {"race": ["White", "Black"]}}),
        example("a doctor", "a", extra={"attributes": {"race": {"White": "White"}}}),
    ],
)
def test_what_is_no_grid_is_refused(wrong):
    with pytest.raises(UserError, match=r"example 'a'.*data.grid=NAME or data.grid=FILE.yaml"):
        AttributeGrid().edit([wrong])


@pytest.mark.parametrize(
    "wrong", ["{race", "{}", "{race!r}", "{race:>9}", "{a.b}", "{{race}}", "}"]
)
def test_braces_hold_names_alone(wrong):
    with pytest.raises(UserError, match=r"here: .*braces hold a name"):
        placeholders(wrong, "here")


WORDS = st.text(st.sampled_from("aeoux {}$\\"), min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_words_are_never_read_as_templates(first, second):
    """A word may hold what looks like a placeholder or an escape: it comes out as it went in."""
    filled = fill("x{first}x{second}x", {"first": first, "second": second})
    assert filled == right_articles(" ".join(f"x{first}x{second}x".split()))
