"""The package's description for the registry: README.md with links that work anywhere.

The address of the repository is `Source` in `[project.urls]` of pyproject.toml and nowhere else. As
long as it is not set, links to files of the repository become plain text.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description; hatchling calls this for every build and installation."""
        text = Path(self.root, "README.md").read_text("utf-8")
        address = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, address.rstrip("/"), tag_of(self.root)),
        }


def tag_of(root: str) -> str:
    """Return the tag of the version in the source tree."""
    text = Path(root, "src", "fedbb", "_version.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.M)
    assert found is not None
    return f"v{found[1]}"


def with_absolute_links(text: str, address: str, tag: str) -> str:
    """Return Markdown whose links to files of the repository lead to them at a tag.

    Args:
        text: Markdown with relative links.
        address: the repository's address without a slash at its end; empty if it is not known.
        tag: the tag of the version.

    Returns:
        The text with absolute links; without an address, with the links' words alone.
    """

    def follow(found: re.Match[str]) -> str:
        image, words, path = found.groups()
        if not address:
            return "" if image else words
        return f"{image}[{words}]({address}/{'raw' if image else 'blob'}/{tag}/{path})"

    return RELATIVE.sub(follow, text)
