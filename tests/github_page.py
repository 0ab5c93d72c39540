"""Texts that want to be more than texts, and what a page of Markdown is made of once it is shown."""

from __future__ import annotations

from html.parser import HTMLParser

from markdown_it import MarkdownIt

NO_WIDTH = "\u200b"
HOSTILE = [
    "a | b | c",
    "`code` ``code``",
    "<script>alert(1)</script>",
    "</pre></details></code><img src=x onerror=alert(1)>",
    "**bold** _it_ ~~gone~~",
    "[text](https://example.org) ![image](https://example.org/x.png) <https://example.org>",
    "https://example.org www.example.org ftp://example.org WWW.example.org mailto:me@example.org",
    "@everyone @org/team me@example.org #12 owner/name#12",
    "line one\nline two\r\n\r\n# heading\n- item\n\n    code\n---\n===\n| a |\n| --- |",
    "&lt;b&gt; &#64; &amp;",
    "\\| \\` \\\\",
    "$x$ $$y$$",
    "\x1b[31m red \u202e backwards \ud800 lone \x00",
    "<!-- comment --> <![CDATA[ x ]]> <?php ?>",
    "[ref]: https://example.org",
    "::error::no",
]


class Parts(HTMLParser):
    """Tags with their attributes, and text, of a rendered page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(markdown: str) -> Parts:
    return Parts(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def plain(text: str) -> str:
    return text.replace(NO_WIDTH, "").strip()
