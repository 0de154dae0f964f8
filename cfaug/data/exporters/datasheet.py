"""The datasheet: questions of Gebru et al. (2021), answered as far as the sets know."""

from __future__ import annotations

from collections.abc import Iterator

from cfaug.data.exporters.cautions import cautions
from cfaug.data.exporters.facts import About, Facts
from cfaug.data.exporters.text import TODO, code, number

OFFENSIVE = (
    "Sets of a grid put labels beside each other, and images show a generator's stereotypes of "
    "them: where the labels are of people, this may hurt."
)

Answers = dict[str, str | None]


def datasheet(about: About, facts: Facts) -> str:
    """Return the datasheet; ``None`` answers are marked for the publisher to write."""
    return "\n".join(_lines(about, facts)) + "\n"


def _lines(about: About, facts: Facts) -> Iterator[str]:
    yield f"# Datasheet: {about.name}"
    yield ""
    yield "After Gebru et al., Datasheets for Datasets, Communications of the ACM 64 (12), 2021."
    for title, answers in _sections(about, facts).items():
        yield from ("", f"## {title}")
        for question, answer in answers.items():
            yield from ("", f"**{question}**", "", answer or TODO.replace(":", "."))


def _sections(about: About, facts: Facts) -> dict[str, Answers]:
    return {
        "Motivation": {
            "For what purpose was the dataset created?": about.description,
            "Who created the dataset and on behalf of which entity?": about.authors,
            "Who funded the creation of the dataset?": None,
        },
        "Composition": _composition(facts),
        "Collection process": _collection(about, facts),
        "Preprocessing, cleaning, labeling": _preprocessing(facts),
        "Uses": {
            "Has the dataset been used for any tasks already?": None,
            "What (other) tasks could the dataset be used for?": "Training data augmentation of "
            "image-text models, and tests of whether they tell minimal changes of a caption apart.",
            "Is there anything about the composition or the way it was made that might impact "
            "future uses?": "The scores are those that selected the sets, so results of models of "
            "the scoring model's family are circular. Images keep the known faults and social "
            "biases of the model that drew them. A split must not cut through a group.",
            "Are there tasks for which the dataset should not be used?": " ".join(
                cautions(facts.attributes)
            )
            if facts.grids
            else None,
        },
        "Distribution": {
            "Will the dataset be distributed to third parties, how and when?": None,
            "Under which copyright or other licence?": about.license and code(about.license),
            "Have any third parties imposed restrictions on the data?": "The licences of the "
            "captions and of the models named under Collection process apply.",
        },
        "Maintenance": {
            "Who will be supporting, hosting, maintaining the dataset?": None,
            "How can the owner, curator or manager be contacted?": about.contact,
            "Will the dataset be updated, and older versions be kept?": None,
            "If others want to extend or contribute, is there a mechanism to do so?": None,
        },
    }


def _composition(facts: Facts) -> Answers:
    kinds = ", ".join(f"{code(k)} ({number(n)})" for k, n in facts.kinds.most_common())
    return {
        "What do the instances represent?": "Image-text pairs in counterfactual sets: the captions "
        "of a set differ by one edit" + (f". Kinds of edits: {kinds}." if kinds else "."),
        "How many instances are there in total?": f"{number(facts.sets)} sets, "
        f"{number(facts.members)} image-text pairs, {number(facts.images)} images, from "
        f"{number(len(facts.groups))} groups.",
        "Does the dataset contain all possible instances or is it a sample?": None,
        "What data does each instance consist of?": "An encoded image, its caption, and where "
        "known the edit, scores, seed, p and guidance scale; the card lists the columns.",
        "Is there a label or target associated with each instance?": "The edit (which words "
        "replaced which), where it is known.",
        "Is any information missing from individual instances?": None,
        "Are relationships between individual instances made explicit?": "Yes: `id` names the set "
        "and `group` what it was made from.",
        "Are there recommended data splits?": "None is given. Split by `group`.",
        "Are there any errors, sources of noise, or redundancies?": "Images are not guaranteed to "
        "show what their caption says." if facts.generated else None,
        "Is the dataset self-contained?": "Yes: images are inside the parquet files.",
        "Does it contain data that might be considered confidential?": None,
        "Does it contain data that might be offensive, or cause anxiety?": OFFENSIVE
        if facts.grids
        else None,
        "Does it identify subpopulations, or individuals, or contain sensitive data?":
        _groups(facts),
    }  # fmt: skip


def _groups(facts: Facts) -> str | None:
    """Say which groups the captions of grids name; ``None`` where there are no grids."""
    if not facts.grids:
        return None
    named = "; ".join(
        f"{code(name)}: {', '.join(map(code, values))}" for name, values in facts.attributes.items()
    )
    return (
        f"Captions ask for {named}. These are labels of captions; the images are generated and "
        "show no individual on purpose, though a generator may resemble its training data."
    )


def _collection(about: About, facts: Facts) -> Answers:
    made = "; ".join(f"{code(name)}: {number(count)} sets" for name, count in facts.made_by.items())
    models = "; ".join(
        f"{code(part)}: {', '.join(map(code, sorted(found)))}"
        for part, found in facts.models.items()
    )
    return {
        "How was the data associated with each instance acquired?": made and f"By program. {made}.",
        "What mechanisms or procedures were used to collect the data?": models and f"{models}.",
        "Where did the captions come from?": about.captions,
        "Who was involved in the data collection and how were they compensated?": None,
        "Over what timeframe was the data collected?": None,
        "Were any ethical review processes conducted?": None,
        "Was data collected from individuals, were they notified, did they consent?": None,
    }  # fmt: skip


def _preprocessing(facts: Facts) -> Answers:
    ranges = ", ".join(
        f"{code(name)} {min(values):.3f} to {max(values):.3f}"
        for name, values in facts.numbers.items()
    )
    return {
        "Was any preprocessing, cleaning or labeling of the data done?": ranges
        and f"Sets were selected by score. What is here lies within: {ranges}.",
        "Was the raw data saved in addition?": "Every candidate's scores are logged beside the "
        "shards this was exported from, not here." if facts.generated else None,
        "Is the software available?": "Yes: cfaug." if facts.generated else None,
    }  # fmt: skip
