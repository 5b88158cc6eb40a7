"""A page read as a browser would: its elements, its words, and whether its tags are balanced."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "link", "input"}


class PageReader(HTMLParser):
    """Collects elements as (tag, attributes), the text inside each tag, and unbalanced tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.faults += self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if len({name for name, _ in attrs}) != len(attrs):
            self.faults.append(f"{tag} has an attribute twice")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> does not fit")

    def handle_data(self, data):
        if data.strip():
            self.words.append((self._open[-1] if self._open else "", data))

    def text(self, *tags: str) -> list[str]:
        """Return the pieces of text that stand directly in these tags."""
        return [data for tag, data in self.words if tag in tags]

    def attributes(self, name: str) -> list[str]:
        """Return all values of an attribute, in the order of the page."""
        return [
            value or "" for _, found in self.elements for key, value in found.items() if key == name
        ]

    def tags(self) -> list[str]:
        """Return the tags of all elements."""
        return [tag for tag, _ in self.elements]
