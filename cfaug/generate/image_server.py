"""Images of a server that speaks OpenAI's protocol: vLLM-Omni, SGLang, hosted services.

``/images/edits`` gets a photo and an instruction, ``/images/generations`` a text alone. A server's
answers are not reproducible on another machine, version or server, so every answer is kept on disk
by the content of its question, and an interrupted run does not ask again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from PIL import Image

from cfaug.core.annotations import NO_RESULT
from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UnavailableError, UserError
from cfaug.core.pixels import decode_image
from cfaug.core.validation import Positive, Processes, check_fields
from cfaug.core.weights import sha256_text
from cfaug.data.shards.shards import disk_errors
from cfaug.generate.server_requests import (
    QuestionRefusedError,
    ServerClient,
    ServerError,
    ServerSettings,
    ask_at_once,
)
from cfaug.imaging.instructed_photos import Arguments, InstructedEditor, PhotoRequest
from cfaug.imaging.photo_editing import PhotoPreparation

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_BYTES = 64 * 2**20
"""Largest size of an answer in bytes; a longer one is an error."""
MOST_PIXELS = 2**24
"""Largest number of pixels of an answered image; a larger one is not decoded."""
REFUSED, NO_IMAGE = "refused", "no_image"
"""The reasons why a request has no image: the server refuses it, or gives no usable image."""
GIVEN_HERE = ("model", "prompt", "image", "n", "size", "seed")
"""Fields of a request that ``fields`` may not give."""


@dataclass(frozen=True)
class ImageServer(InstructedEditor):
    """Edits photos by a server of images; several requests are sent at once.

    ``Draw.seed`` is sent as the field ``seed``, ``Draw.cfg`` as the field that ``guidance`` names,
    and ``Draw.parameters`` are further fields. After an unusable answer the request is repeated.
    If the server is unreachable, the run stops: its answers are kept, and the same command resumes
    from there.

    Args:
        base_url: the server's address with the version of its API: ``http://localhost:8000/v1``.
        cache: the folder in which answers are kept, such as ``paths.cache``; ``None`` keeps none.
        fields: further fields of every request, such as ``num_inference_steps``, and
            ``response_format: b64_json``, which some services require and others refuse; ``None``
            for no further ones.
        guidance: the name of the field that is ``Draw.cfg``, ``guidance_scale`` or
            ``true_cfg_scale``; ``None`` sends none.
        seeded: whether a seed is sent; some hosted services take none.
        instructions: see ``cfaug.imaging.instructed_photos.InstructedPhotos``, also for ``side``,
            ``square`` and ``multiple``.
        attempts: the largest number of times that a request is sent until its answer is usable.
    """

    base_url: Annotated[str, NO_RESULT]
    model: str
    """the name of the model as its server knows it"""
    cache: Annotated[str | None, NO_RESULT] = None
    fields: Arguments | None = field(default_factory=lambda: {"response_format": "b64_json"})
    guidance: str | None = None
    seeded: bool = True
    instructions: str = "instructions"
    side: Positive = 1024
    """the side of an image, in pixels"""
    square: bool = False
    """whether photos are cropped to squares"""
    multiple: Positive = 16
    """the number of pixels of which both sides are multiples"""
    photos: PhotoPreparation = field(default_factory=PhotoPreparation)
    """how photos are cropped and scaled"""
    attempts: Positive = 3
    concurrency: Annotated[Processes, NO_RESULT] = 8
    """requests at once"""
    settings: ServerSettings = field(default_factory=ServerSettings)
    """timeouts and retries of a request"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")
        self.settings.check_url(self.base_url)
        self._check_side()
        _ = self._instructions
        for name in (*(self.fields or ()), *([] if self.guidance is None else [self.guidance])):
            if name in GIVEN_HERE:
                raise UserError(
                    f"recipe.image_editor.fields.{name}: every request has its own {name}"
                )

    def answer(self, requests: Sequence[PhotoRequest]) -> list[NDArray[np.uint8] | str]:
        """Return the server's image for each request, in order; answered ones are not sent again.

        Raises:
            UnavailableError: if the server is unreachable, or refuses every request; the answers
                so far are kept.
        """
        questions = [_Question(self, request) for request in requests]
        made = {question.key: self._read_kept(question) for question in questions}
        missing = list({q.key: q for q in questions if made[q.key] is None}.values())
        answers, gone = ask_at_once(missing, self._ask, self.concurrency)
        if isinstance(gone, ServerError):
            where = "" if self._folder is None else f" Answers are kept in {self._folder}:"
            raise UnavailableError(
                f"{gone}.{where} start the server, and run the same command again"
            ) from gone
        if gone is not None:
            raise UnavailableError(str(gone)) from gone
        made |= {question.key: image for question, image in zip(missing, answers, strict=True)}
        refusals = [image for image in answers if isinstance(image, _Refusal)]
        if missing and len(refusals) == len(missing) and not self._has_answered():
            raise UnavailableError(
                f"the server at {self.base_url} gives no image for any request: "
                f"{refusals[0].said}. Give base_url with its version, such as "
                "http://localhost:8000/v1, and only fields that the server takes "
                "(recipe.image_editor.fields, seeded, guidance)"
            )
        results: list[NDArray[np.uint8] | str] = []
        for question in questions:
            image = made[question.key]
            assert image is not None
            results.append(image.reason if isinstance(image, _Refusal) else image)
        return results

    def describe(self) -> dict[str, str]:
        """Return the model and the settings, without the server's address and key."""
        return {
            "image": f"image server {self.model}",
            "fields": json.dumps(dict(self.fields or {}), sort_keys=True),
            "guidance": str(self.guidance),
            "seed": "sent" if self.seeded else "not sent",
            "instructions": self._describe_instructions(),
            "licence": "the server's terms",
            "reproducible": "no: another server, version or machine may answer differently; "
            "the images here are the answers as they were given",
        }

    @cached_property
    def _client(self) -> ServerClient:
        return ServerClient(self.base_url, self.settings, MOST_BYTES)

    @cached_property
    def _folder(self) -> Path | None:
        if self.cache is None:
            return None
        name = sha256_text(f"images {self.model}")[:32]
        return Path(self.cache).expanduser() / "images" / name

    @cached_property
    def _answered(self) -> threading.Event:
        return threading.Event()

    def _has_answered(self) -> bool:
        """Say whether there was an image before, so that a refusal concerns its request alone."""
        kept = self._folder is not None and any(self._folder.glob("*.image"))
        return kept or self._answered.is_set()

    def _read_kept(self, question: _Question) -> NDArray[np.uint8] | _Refusal | None:
        """Return the kept answer; ``None`` without one. A damaged file is requested again."""
        if self._folder is None:
            return None
        file = self._folder / f"{question.key}.image"
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        digest, _, content = data.partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            return None
        return _decode(content, str(file))

    def _ask(self, question: _Question) -> NDArray[np.uint8] | _Refusal:
        """Send one request until its answer is usable, or its attempts are used up."""
        refusal = _Refusal(NO_IMAGE, "")
        for _ in range(self.attempts):
            try:
                reply = self._client.send(*question.content())
            except QuestionRefusedError as error:
                return _Refusal(REFUSED, str(error))
            try:
                content = _read(reply)
                image = _decode(content, "the server's image")
            except UserError as error:
                refusal = _Refusal(NO_IMAGE, str(error))
                continue
            if self._folder is not None:
                with disk_errors(self._folder, f"image {question.key}", len(content)):
                    self._folder.mkdir(parents=True, exist_ok=True)
                    digest = hashlib.sha256(content).hexdigest().encode()
                    write_file(self._folder / f"{question.key}.image", digest + b"\n" + content)
            self._answered.set()
            return image
        return refusal


@dataclass(frozen=True)
class _Refusal:
    """A request without an image: the reason that is counted, and the server's words."""

    reason: str
    said: str


class _Question:
    """One request to a server.

    Attributes:
        key: the hash of everything that the answer depends on, other than server and model.
    """

    def __init__(self, server: ImageServer, request: PhotoRequest) -> None:
        height, width = request.size
        draw = request.draw
        self._photo = request.photo
        self._fields: dict[str, Any] = {
            **(server.fields or {}),
            "model": server.model,
            "prompt": request.prompt,
            "n": 1,
            "size": f"{width}x{height}",
            **({} if server.guidance is None else {server.guidance: draw.cfg}),
            **draw.parameters,
        }
        photo = b"" if request.photo is None else request.photo.tobytes()
        # The seed is part of the key even if it is not sent: candidates differ by it.
        content = [self._fields, server.seeded, draw.seed, hashlib.sha256(photo).hexdigest()]
        self.key = sha256_text(json.dumps(content, sort_keys=True))
        if server.seeded:  # servers read it as a signed integer of 32 bits
            self._fields["seed"] = draw.seed % 2**31

    def content(self) -> tuple[str, bytes, str]:
        """Return the path of the request, its content, and the content's type."""
        if self._photo is None:
            return "images/generations", json.dumps(self._fields).encode(), "application/json"
        buffer = io.BytesIO()
        Image.fromarray(self._photo).save(buffer, "png")
        photo = buffer.getvalue()
        boundary = f"cfaug-{self.key}"  # a hash of the content, which cannot contain it
        body = b""  # a form (RFC 7578)
        for name, value in self._fields.items():
            text = value if isinstance(value, str) else json.dumps(value)
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
            body += f"{head}{text}\r\n".encode(errors="replace")
        body += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="image"; '
            'filename="photo.png"\r\nContent-Type: image/png\r\n\r\n'
        ).encode()
        body += photo + f"\r\n--{boundary}--\r\n".encode()
        return "images/edits", body, f"multipart/form-data; boundary={boundary}"


def _read(reply: Mapping[str, Any]) -> bytes:
    """Return the image file of a reply.

    Raises:
        UserError: if there is none.
    """
    try:
        answer = reply["data"][0]
        text = answer.get("b64_json")
    except (KeyError, IndexError, TypeError, AttributeError):
        said = str(reply.get("error") or json.dumps(reply))[:200]
        raise UserError(f"no answer of an image server, but: {said}") from None
    if not isinstance(text, str):
        if answer.get("url"):
            raise UserError(
                "the answer is an address, which is not followed: ask for the image itself, by "
                "recipe.image_editor.fields.response_format=b64_json"
            )
        raise UserError("the answer has no b64_json")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"b64_json is not base64: {error}") from error


def _decode(content: bytes, name: str) -> NDArray[np.uint8]:
    """Decode an image, after checking the size in its header."""
    return np.asarray(decode_image(content, name, MOST_PIXELS))
