"""Addresses without their secrets: user info, query and a pipe's command live in the request alone.

Every command hides them first, in its words and in its settings, so that cards, records, caches,
names of folders and messages have only the hidden form. The form does not depend on user info and
query, so that a run with a new token is the same run. What was typed is kept in this process.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from cfaug.core.errors import UserError

HIDDEN = "HIDDEN"
"""The word in place of a secret, which needs no quotes in a shell, in Hydra and in Markdown."""

ADDRESS = re.compile(
    r"\s*(?P<scheme>[a-z][a-z0-9+.-]*:/{1,3}|(?:https?|hf|gs):)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
"""An address of any scheme, also of one that no reader opens: its error would show the secret."""

PIPE = re.compile(r"\s*pipe:(?P<command>.*)", re.IGNORECASE | re.DOTALL)
HIDDEN_PIPE = re.compile(rf"pipe:[^'\"]* {HIDDEN}-[0-9a-f]{{8}}")
STARTS = re.compile(r"[a-z][a-z0-9+.-]*:/|\b(?:https?|hf|gs|pipe):", re.IGNORECASE)

SETTING = re.compile(r"(?P<key>[-+~]*(?:(?!:/)[\w.@/:$-])+)=(?P<value>.*)", re.DOTALL)
"""A word of a command line, ``key=value``."""

VARIABLE = re.compile(r"\$\{oc\.env:\s*(\w+)\s*\}")
"""A reference of OmegaConf's to a variable of the environment."""

QUERY = re.compile(r"[?#&;]")
"""The start of what is hidden after a path; ``&`` and ``;`` stand there by mistake."""

IN_QUOTES = r"""(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote)).)*)(?:(?P=quote)|$)"""
PARTS_OF_LISTS = re.compile(rf"""{IN_QUOTES}|[^,\[\]()"']+""", re.DOTALL)
"""Texts in quotes, and others, within a list or a sweep of Hydra's grammar."""

PARTS_OF_DICTIONARIES = re.compile(rf"""{IN_QUOTES}|[^,\[\](){{}}"']+""", re.DOTALL)

CREDENTIALS = re.compile(
    r"""(?P<name>(?:^|\s)(?:-[uHUb]\s*|--(?:user|header|oauth2-bearer|proxy-user|cookie|password
    |http-user|http-password|token)(?:\s+|=)|[A-Za-z_]\w*=))(?:'[^']*'|"(?:\\.|[^"\\])*"|\S+)""",
    re.VERBOSE,
)
"""Options of curl, wget and others, and assignments, with values that may change with a token."""

PROGRAM = re.compile(r"[\w./+-]+")
SHOWN_PATH = re.compile(r"[\w./{},%~+:@-]*")

PUBLISHED = "export.about"
"""The settings that are written for readers of a card: addresses in them are meant to be seen."""

ROUNDS = 200_000
"""Rounds of the digest of a secret: 0.1 s each, so that nobody tries passwords by the million."""

_typed: dict[str, str] = {}
"""{hidden form: what was typed} of this process."""

_command: dict[str, str] = {}
"""The same, of the present command alone."""


def hide(text: str) -> str:
    """Return a text without secrets if it is an address or a pipe; any other text is unchanged.

    >>> hide("https://user:password@example.org/{0..9}.tar?token=1")
    'https://HIDDEN@example.org/{0..9}.tar?HIDDEN'
    >>> hide("pipe:curl -H 'Authorization: Bearer 1' https://user:pw@example.org/{0..9}.tar")
    'pipe:curl https://HIDDEN@example.org/{0..9}.tar HIDDEN-09c7d5ac'
    >>> hide("photos/2024?"), hide("hf://datasets/OWNER/NAME@main/0.tar")
    ('photos/2024?', 'hf://datasets/OWNER/NAME@main/0.tar')
    """
    shown = without_secrets(text)
    if shown != text:
        _learn(shown, text)
    elif shown in _typed:
        _learn(shown, _typed[shown])
    return shown


def without_secrets(text: str) -> str:
    """Return the hidden form of a text, as ``hide`` does, but forget the text."""
    if match := PIPE.fullmatch(text):
        return text if HIDDEN_PIPE.fullmatch(text) else _hide_pipe(match["command"])
    match = ADDRESS.fullmatch(text)
    if match is None:
        return text
    user, rest, query = _split(match["rest"])
    if user in (None, HIDDEN) and query in ("", HIDDEN):
        return text
    user = "" if user is None else f"{HIDDEN}@" if rest else HIDDEN
    return f"{match['scheme']}{user}{rest}{f'?{HIDDEN}' if query else ''}"


def _split(rest: str) -> tuple[str | None, str, str]:
    """Return user info, host with path, and query of an address after its slashes.

    A password may hold signs that should have been encoded: an authority with something else than
    a port after its colon is a password's beginning.
    """
    authority, path = (re.split(ends, rest, maxsplit=1)[0] for ends in (r"[/?#\\]", r"[?#]"))
    has_colon = ":" in authority and not authority.startswith("[")
    has_password = has_colon and not re.fullmatch(r"\d{0,5}", authority.partition(":")[2])
    at = authority.rfind("@")
    if at < 0 and has_colon:
        at = (rest if has_password else path).rfind("@")
    if at < 0 and has_password:
        return rest, "", ""
    user = None if at < 0 else rest[:at]
    rest = rest[at + 1 :]
    cut = QUERY.search(rest)
    return (user, rest, "") if cut is None else (user, rest[: cut.start()], rest[cut.end() :])


def _hide_pipe(command: str) -> str:
    """Return a pipe as its program, the addresses it names, and a digest that tells it from others.

    Any other word may be a secret. The digest is of the command without what is known to be one.
    """
    program = next((word for word in _words(command) if "=" not in word), "")
    shown = [program] if PROGRAM.fullmatch(program) else []
    for run in command.split():
        if start := re.search(r"[a-z][a-z0-9+.-]*://", run, re.IGNORECASE):
            scheme, _, rest = without_secrets(run[start.start() :]).partition("//")
            path = SHOWN_PATH.match(rest)
            assert path is not None
            shown.append(f"{scheme}//{path[0]}")
    without = CREDENTIALS.sub(rf"\g<name>{HIDDEN}", command)
    without = re.sub(
        r"[a-z][a-z0-9+.-]*://[^\s'\"]*",
        lambda match: without_secrets(match[0]),
        without,
        flags=re.I,
    )
    return f"pipe:{' '.join(shown)} {HIDDEN}-{slow_digest(without, b'pipe')[:8]}"


def _words(command: str) -> list[str]:
    """Return the words of a command as a shell reads them, or as spaces divide them."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@lru_cache
def slow_digest(text: str, salt: bytes) -> str:
    """Return a digest from which nobody finds a secret by trying many; it takes 0.1 s."""
    return hashlib.pbkdf2_hmac("sha256", text.encode(errors="replace"), salt, ROUNDS).hex()


def _learn(shown: str, typed: str) -> None:
    if _command.setdefault(shown, typed) != typed:
        raise UserError(
            f"two addresses of this command are both {shown} without their secrets, and would be "
            "taken for one another, since user info, query and a pipe's options are kept nowhere: "
            "copy the files of one of them into a folder, and name that"
        )
    _typed[shown] = typed


def find_typed(shown: str) -> str | None:
    """Return what was typed for a hidden form in this process; ``None`` if nothing was."""
    return _typed.get(shown)


def reveal(shown: str) -> str:
    """Return the address that was typed for a hidden form, for the request alone."""
    if shown not in _typed and is_hidden(shown):
        raise UserError(
            f"{shown} is an address whose secrets are kept nowhere: type it whole, with its user "
            "info, query or command. With dry_run=true, train.py only copies its shards, which "
            "later commands find by the hidden form"
        )
    return _typed.get(shown, shown)


def is_hidden(text: str) -> bool:
    """Return whether a text is a hidden form."""
    marks = (f"//{HIDDEN}@", f"?{HIDDEN}", f"//{HIDDEN}")
    ends = text.endswith(marks[1:]) or marks[0] in text
    return bool(HIDDEN_PIPE.fullmatch(text) or (ADDRESS.fullmatch(text) and ends))


def hide_words(words: Sequence[str]) -> list[str]:
    """Return the words of a new command with the addresses in their values hidden.

    Args:
        words: words of a command line, ``key=value``; lists and sweeps of Hydra's grammar too.

    >>> hide_words(["data.real='http://a?b=1'", "seed=1", "x=[http://u:p@a/0.tar,b]"])
    ["data.real='http://a?HIDDEN'", 'seed=1', 'x=[http://HIDDEN@a/0.tar,b]']
    """
    _command.clear()
    return [_hide_word(word) if STARTS.search(word) else word for word in words]


def _hide_word(word: str) -> str:
    match = SETTING.fullmatch(word)
    if match is None:  # no setting: an error will show it
        start = STARTS.search(word)
        assert start is not None
        return word[: start.start()] + hide(word[start.start() :])
    key, value = match["key"], match["value"]
    if key.lstrip("-+~").startswith(PUBLISHED):
        return word
    if value[:1] == "{":
        return f"{key}={PARTS_OF_DICTIONARIES.sub(_hide_part, value)}"
    if (value[:1] and value[:1] in "'\"[(") or re.match(r"\w+\(", value):
        return f"{key}={PARTS_OF_LISTS.sub(_hide_part, value)}"
    # A sweep's values lie between commas; a command with spaces around its commas is one value.
    parts: list[str] = []
    for part in re.split(r""",(?=(?:[^'"]|'[^']*'|"[^"]*")*$)(?![^(\[{]*[)\]}])""", value):
        if parts and PIPE.match(parts[-1]) and " " in part and not STARTS.match(part):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return f"{key}={','.join(map(_hide_plain, parts))}"


def _hide_part(part: re.Match[str]) -> str:
    quote = part["quote"]
    if quote is None:
        start = STARTS.search(part[0])
        at = len(part[0]) if start is None else start.start()
        return part[0][:at] + _hide_plain(part[0][at:])
    text = re.sub(r"\\(?=\\*[\"'])", "", part["quoted"])  # Hydra's escapes of quotes
    shown = _hide_plain(text)
    return part[0] if shown == text else f"{quote}{shown}{quote}"


def _hide_plain(text: str) -> str:
    """Hide a value of a command line, with the environment's variables that it refers to.

    A value that refers to other settings is hidden with them (``hide_settings``).
    """
    if without_secrets(text) != text:
        text = VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), text)
    return text if "${" in text else hide(text)


def hide_settings(tree: Any, under: str = "") -> Any:
    """Return settings with every address hidden, those of files and of other settings too.

    Args:
        under: the key of the tree, with dots.
    """
    if under == PUBLISHED:
        return tree
    if isinstance(tree, Mapping):
        return {
            key: hide_settings(value, f"{under}.{key}".lstrip(".")) for key, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [hide_settings(item, under) for item in tree]
    return hide(tree) if isinstance(tree, str) and STARTS.match(tree.lstrip()) else tree


# Keys of servers, which live in the environment and in the headers of requests alone.

SECRET_VARIABLE = re.compile(r"TOKEN$|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY$|CREDENTIAL")
"""The names of environment variables that hold secrets, such as HF_TOKEN or WANDB_API_KEY."""
FEWEST = 6
"""Characters from which on a part of a text is recognised as a secret's encoded form."""

_keys: dict[str, None] = {}
"""The keys that this process sends, in the order in which it learnt them."""


def remember_key(key: str) -> None:
    """Have a key of a server hidden in every text from now on."""
    _keys[key] = None


def hide_keys(text: str) -> str:
    """Return a text without the keys that this process sends, in any form that servers repeat.

    These are the key itself, as a part of an address or of HTML, escaped, as hexadecimal digits,
    and in base64, whatever stands before it there.

    >>> remember_key("sk/abc=123456")
    >>> hide_keys("Bearer sk/abc=123456"), hide_keys("?key=sk%2Fabc%3D123456&x=1")
    ('Bearer HIDDEN', '?key=HIDDEN&x=1')
    """
    secrets = [
        value
        for name, value in os.environ.items()
        if len(value) > FEWEST and SECRET_VARIABLE.search(name)
    ]
    for form in _forms((*_keys, *secrets)):
        if len(form) > 3:
            text = text.replace(form, HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)
    return text


@lru_cache(maxsize=64)
def _forms(keys: tuple[str, ...]) -> list[str]:
    """Return the texts by which keys can be repeated, longest first."""
    forms: dict[str, None] = {}
    for key in keys:
        escaped = json.dumps(key)[1:-1]
        plain = [key, quote(key), quote(key, safe=""), quote_plus(key), html.escape(key)]
        plain += [escaped, escaped.replace("/", "\\/"), repr(key)[1:-1]]
        forms |= dict.fromkeys(plain + [re.sub("%..", lambda m: m[0].lower(), t) for t in plain])
        content = key.encode(errors="replace")
        encoded = [content.hex(), content.hex().upper()]
        for before in range(3):
            bits = 8 * (before + len(content))
            whole = base64.b64encode(bytes(before) + content).decode()[
                [0, 2, 3][before] : bits // 6
            ]
            encoded += [whole, whole.replace("+", "-").replace("/", "_"), quote(whole, safe="")]
        forms |= dict.fromkeys(text for text in encoded if len(text) > FEWEST)
    return sorted((form for form in forms if form and form != HIDDEN), key=len, reverse=True)


def hide_in_answer(content: Any) -> Any:
    """Return a server's answer of texts, lists and mappings with the keys hidden in all texts."""
    if isinstance(content, str):
        return hide_keys(content)
    if isinstance(content, Mapping):
        return {hide_keys(str(name)): hide_in_answer(item) for name, item in content.items()}
    if isinstance(content, list):
        return [hide_in_answer(item) for item in content]
    return content


def scrub(text: str, address: str | None = None) -> str:
    """Return a text of a program or library without keys and without the secrets of an address.

    Args:
        address: the address with its secrets; ``None`` for all that this process was given.
    """
    text = hide_keys(text)
    typed = _typed.values() if address is None else [address]
    secrets = set(chain.from_iterable(map(_secrets, typed))) - {HIDDEN, ""}
    for secret in sorted(secrets, key=len, reverse=True):
        pattern = re.escape(secret)
        text = re.sub(pattern if len(secret) > 3 else rf"(?<!\w){pattern}(?!\w)", HIDDEN, text)
    return text


def _secrets(typed: str) -> Iterator[str]:
    """Yield all of a typed text that a message might repeat, longest parts included."""
    if pipe := PIPE.fullmatch(typed):
        command = pipe["command"].strip()
        words = _words(command)
        yield from (command, *words[1:])
        for word in words:
            yield from re.split(r"[=:\s]+", word)[1:]
            if start := re.search(r"[a-z][a-z0-9+.-]*://.*", word, re.IGNORECASE):
                yield from _secrets(start[0])
        return
    match = ADDRESS.fullmatch(typed)
    if match is None:
        return
    user, _, query = _split(match["rest"])
    yield typed
    for part in (user or "", query):
        yield from (part, unquote(part))
    if user:
        yield from (base64.b64encode(unquote(user).encode()).decode(), *user.split(":", 1))
    for part in query.split("&"):
        yield from (part.partition("=")[2], unquote(part.partition("=")[2]))
