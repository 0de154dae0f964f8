"""BridgeTower, FLAVA and ViLT, against what plain transformers makes of the same folders."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder, Matcher
from cfaug.models.specs import BridgeTower, BridgeTowerMatching, HFClip, ViltMatching
from tests.editing.tiny import roberta_tokenizer
from tests.models import tiny

BOUNDS = {"logit_scale_min": 0.0, "logit_scale_max": 4.6052}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    return tiny.save_all(shelf, "bridgetower", "bridgetower_itm", "flava", "vilt")


@pytest.fixture(scope="module")
def images():
    return [tiny.image(seed=seed) for seed in range(4)]


def plain(kind, folder, images, **options):
    """The home library's own model and inputs."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    inputs = processor(
        images=images, text=tiny.CAPTIONS, return_tensors="pt", padding=True, **options
    )
    return kind.from_pretrained(folder).eval(), inputs


def losses(model, inputs):
    """FlavaForPreTraining's own terms; the masked ones need labels to be asked at all."""
    patches = torch.zeros(4, 16)
    output = model(
        **inputs,
        input_ids_masked=inputs["input_ids"],
        mim_labels=patches.long(),
        bool_masked_pos=patches.bool(),
        skip_unmasked_multimodal_encoder=True,
    )
    return output.loss_info


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def same(ours, theirs):
    """Rounding leaves its mark in proportion to a gradient's largest entry, not to each entry."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        bound = 1e-5 * expected.abs().max().item() + 1e-8
        assert (ours[name] - expected).abs().max().item() <= bound, name


def test_bridgetowers_loss_and_gradients_are_transformers(folders, images):
    from transformers import BridgeTowerForContrastiveLearning

    encoder = BridgeTower(str(folders["bridgetower"])).load()
    model, inputs = plain(BridgeTowerForContrastiveLearning, folders["bridgetower"], images)
    expected = model(**inputs, return_loss=True).loss
    loss = encoder.contrastive(encoder.features(tiny.stack(encoder, images), tiny.CAPTIONS))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    loss.backward()
    same(gradients(encoder.model), gradients(model))
    crossed = "bridgetower.cross_modal_image_layers.1.crossattention.self.query.weight"
    assert crossed in gradients(model)


def test_bridgetowers_embeddings_need_no_cross_encoder(folders, images):
    from transformers import BridgeTowerForContrastiveLearning

    encoder = BridgeTower(str(folders["bridgetower"])).load()
    assert isinstance(encoder, DualEncoder)
    model, inputs = plain(BridgeTowerForContrastiveLearning, folders["bridgetower"], images)
    body = encoder.model.bridgetower
    for layers in (body.cross_modal_image_layers, body.cross_modal_text_layers):
        for layer in layers:
            layer.register_forward_pre_hook(lambda *_: pytest.fail("the cross encoder ran"))
    unit = torch.nn.functional.normalize
    with torch.no_grad():
        expected = model(**inputs)
        image_embeddings = encoder.encode_image(tiny.stack(encoder, images))
        text_embeddings = encoder.encode_text(encoder.tokenize(tiny.CAPTIONS))
    torch.testing.assert_close(unit(image_embeddings), expected.image_embeds)
    torch.testing.assert_close(unit(text_embeddings), expected.text_embeds)


@pytest.mark.parametrize("mode", ["as saved", "the model within"])
def test_flavas_loss_and_gradients_are_its_global_contrastive_term(folders, images, tmp_path, mode):
    from transformers import FlavaForPreTraining

    folder = folders["flava"]
    model, inputs = plain(FlavaForPreTraining, folder, images)
    if mode == "the model within":
        folder = tmp_path / "flava"
        model.flava.save_pretrained(folder)
        tiny.flava_processor().save_pretrained(folder)
    encoder = HFClip(str(folder), **BOUNDS).load()
    expected = losses(model, inputs).global_contrastive
    loss = encoder.contrastive(encoder.features(tiny.stack(encoder, images), tiny.CAPTIONS))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    loss.backward()
    same(gradients(encoder.model), gradients(model.flava))


@pytest.mark.parametrize("name", ["bridgetower", "flava"])
def test_a_saved_model_is_the_same_model(folders, images, name, tmp_path):
    from transformers import BridgeTowerForContrastiveLearning, FlavaModel

    spec = BridgeTower if name == "bridgetower" else HFClip
    home = BridgeTowerForContrastiveLearning if name == "bridgetower" else FlavaModel
    encoder = spec(str(folders[name])).load()
    with torch.no_grad():
        encoder.log_scale.fill_(1.5)
    encoder.save(tmp_path / "saved")
    again = spec(str(tmp_path / "saved")).load()
    assert again.transform == encoder.transform
    model, report = home.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for key, value in encoder.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key])
        assert torch.equal(value, model.state_dict()[key])


@pytest.mark.parametrize(
    ("spec", "name", "kind"),
    [(BridgeTowerMatching, "bridgetower_itm", "probability"), (ViltMatching, "vilt", "logit")],
)
def test_a_matcher_gives_what_transformers_gives_each_pair_alone(folders, images, spec, name, kind):
    from transformers import BridgeTowerForImageAndTextRetrieval, ViltForImageAndTextRetrieval

    matcher = spec(str(folders[name])).load(Matcher)
    assert isinstance(matcher, Matcher)
    assert matcher.kind == kind
    home = ViltForImageAndTextRetrieval if name == "vilt" else BridgeTowerForImageAndTextRetrieval
    model, inputs = plain(home, folders[name], images)
    assert name != "vilt" or inputs["pixel_mask"].all()
    with torch.no_grad():
        logits = model(**inputs).logits
        expected = logits[:, 0] if name == "vilt" else logits.softmax(-1)[:, 1]
        given = tiny.stack(matcher, images)
        torch.manual_seed(1)
        scores = matcher.match(given, tiny.CAPTIONS)
        after = torch.rand(1)  # the global generator neither counts nor moves
        assert torch.equal(scores, matcher.match(given, tiny.CAPTIONS))
        alone = [matcher.match(given[i : i + 1], [text]) for i, text in enumerate(tiny.CAPTIONS)]
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(scores, torch.cat(alone), atol=1e-5, rtol=1e-4)
    assert len(set(scores.tolist())) == 4


SCALES = {"image_mean": [0.48, 0.45, 0.4], "image_std": [0.27, 0.26, 0.28], "resample": 3}
OF_THE_HUB = {
    "bridgetower": {
        "image_processor_type": "BridgeTowerImageProcessor", "size": {"shortest_edge": 32},
        "crop_size": 32, "do_center_crop": True, "size_divisor": 32,
    },
    "flava": {
        "feature_extractor_type": "FlavaFeatureExtractor", "crop_size": 32, "do_center_crop": True,
        "size": 32, "codebook_size": 112, "codebook_crop_size": 112, "codebook_resample": 1,
    },
    "vilt": {"feature_extractor_type": "ViltFeatureExtractor", "size": 32, "size_divisor": 32},
}  # fmt: skip
"""Processors as the Hub's folders describe them: of before transformers wrote one file for all."""


@pytest.mark.parametrize("name", OF_THE_HUB)
def test_a_folder_of_the_hubs_older_form_is_the_same_model(folders, tmp_path, name):
    folder = shutil.copytree(folders[name], tmp_path / name)
    (folder / "processor_config.json").unlink()
    described = {**OF_THE_HUB[name], **SCALES}
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    spec = {"bridgetower": BridgeTower, "flava": HFClip, "vilt": ViltMatching}[name]
    matcher, before = spec(str(folder)).load(Matcher), spec(str(folders[name])).load(Matcher)
    assert matcher.transform.size == 32
    assert matcher.transform.mean == tuple(SCALES["image_mean"])
    given = tiny.pixels()
    before.transform = matcher.transform
    if hasattr(before, "encoder"):
        before.encoder.transform = matcher.transform
    with torch.no_grad():
        scores, expected = (m.match(given, tiny.CAPTIONS) for m in (matcher, before))
    assert torch.equal(scores, expected)


@pytest.mark.slow
def test_bridgetower_reads_robertas_own_tokenizer(folders, tmp_path):
    from transformers import BridgeTowerForContrastiveLearning, BridgeTowerProcessor

    words = roberta_tokenizer()
    folder = tiny.save_bridgetower(tmp_path / "roberta", vocab_size=len(words), pad_token_id=1)
    images = BridgeTower(str(folder)).load().processor.image_processor
    BridgeTowerProcessor(images, words).save_pretrained(folder)
    encoder = BridgeTower(str(folder)).load()
    assert encoder.tokenizer.max_length == 12  # 14 rows; two lie before the first position
    tokens = encoder.tokenize(["A dog.", "Two dogs play with a ball in the snow, again and again"])
    assert tokens["input_ids"].shape == (2, 12)
    assert tokens["input_ids"][0, 0] == words.bos_token_id
    assert tokens["input_ids"][0, -1] == words.pad_token_id
    model = BridgeTowerForContrastiveLearning.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(**tokens, pixel_values=torch.zeros(2, 3, 32, 32)).text_embeds
        embeddings = encoder.encode_text(tokens)
    torch.testing.assert_close(torch.nn.functional.normalize(embeddings), expected)


@pytest.mark.parametrize(
    ("spec", "folder", "words"),
    [
        (BridgeTower, "bridgetower_itm", "itc_"),
        (BridgeTowerMatching, "bridgetower", "itm_score"),
        (ViltMatching, "flava", r"missing|cannot be loaded"),
        (HFClip, "bridgetower", "not a dual encoder"),
    ],
)
def test_a_folder_of_another_model_is_refused(folders, spec, folder, words):
    loading = spec(str(folders[folder]))
    with pytest.raises(UserError, match=words) as caught:
        loading.load()
    assert str(folders[folder]) in str(caught.value)


def test_no_more_positions_are_taken_than_there_are(folders):
    # 14 rows, of which the first is the padding's.
    with pytest.raises(UserError, match="at most 13"):
        BridgeTower(str(folders["bridgetower"]), max_length=14).load()


def test_separate_transforms_have_no_contrastive_feature(folders, tmp_path):
    folder = shutil.copytree(folders["bridgetower"], tmp_path / "separate")
    config = json.loads((folder / "config.json").read_text())
    config["share_cross_modal_transformer_layers"] = False
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"share_cross_modal|missing"):
        BridgeTower(str(folder)).load()


def test_a_folder_with_two_heads_has_two_identities(folders):
    folder = str(folders["bridgetower"])
    assert BridgeTower(folder).identity() != BridgeTowerMatching(folder).identity()
