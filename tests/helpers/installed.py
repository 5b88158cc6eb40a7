"""Packages that are installed as far as Python can tell: code and metadata on the path."""

import sys
from importlib import invalidate_caches


def install(folder, monkeypatch, name, code, version="1.0", **groups):
    """Put a package of one module on the path, registered in these groups of entry points.

    A group is given without its "fedbb.", as in `models="my-net = my_package:build"`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"[fedbb.{group}]\n{points}\n" for group, points in groups.items()]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    invalidate_caches()
