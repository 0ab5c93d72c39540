"""The Markdown of this repository, taken apart: blocks of code, code within lines, links, commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
SHELL = "bash"
_FOLDERS = (".github", "acgate", "benchmarks", "fixtures", "tests", "tolerances")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code.

    Attributes:
        path: The document, relative to the repository.
        line: Where the block begins.
        kind: Its language; a block that is only indented is a shell's.
        text: What it says.
        marker: The comment `<!-- ... -->` before it, empty where there is none.
        lead: The paragraph before it.
    """

    path: Path
    line: int
    kind: str
    text: str
    marker: str
    lead: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}"


def documents() -> list[Path]:
    """Return the Markdown files of the repository, relative to it."""
    found = [*ROOT.glob("*.md"), *(path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.md"))]
    return sorted(path.relative_to(ROOT) for path in found)


def parsed(path: Path) -> list[Token]:
    """Read one document."""
    return MarkdownIt("commonmark").enable("table").parse((ROOT / path).read_text(encoding="utf-8"))


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of code of one document."""
    marker, lead = "", ""
    for token in parsed(path):
        match token.type:
            case "html_block":
                marker = token.content.strip().removeprefix("<!--").removesuffix("-->").strip()
            case "inline":
                lead, marker = token.content, ""
            case "fence" | "code_block":
                kind = token.info.strip() if token.type == "fence" else SHELL
                assert token.map is not None
                yield Block(path, token.map[0] + 1, kind, token.content, marker, lead)
                marker = ""
            case _:
                pass


def inline_code(path: Path) -> Iterator[str]:
    """Yield the code that stands within lines, such as `--model`."""
    for token in parsed(path):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def links(path: Path) -> Iterator[str]:
    """Yield where links of a document lead to."""
    for token in parsed(path):
        for child in token.children or ():
            if child.type == "link_open":
                yield str(child.attrs["href"])


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a shell's text, word by word, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word != "&&":
                words.append(word)
            elif words:
                yield words
                words = []
