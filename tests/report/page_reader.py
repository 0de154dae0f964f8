"""Someone who looks at a page of cards in a browser."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks.browser import Browser


@dataclass
class PageReader:
    """What they choose, and what they see."""

    browser: Browser

    def chooses(self, name: str, value: str) -> None:
        self.browser.run(
            f"(() => {{ const e = document.getElementById('{name}'); e.value = "
            f"{json.dumps(value)}; e.dispatchEvent(new Event("
            f"e.tagName === 'SELECT' ? 'change' : 'input', {{bubbles: true}})); }})()"
        )

    def clicks(self, name: str) -> None:
        self.browser.run(f"document.getElementById('{name}').click()")

    def resets(self) -> None:
        self.clicks("reset")
        self.browser.run("new Promise((done) => setTimeout(done, 50))")

    def seen(self, selector: str) -> list[str]:
        return self.browser.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        )

    @property
    def status(self) -> str:
        return self.seen("[role=status]")[0]
