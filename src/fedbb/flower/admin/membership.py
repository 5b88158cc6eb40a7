"""The members of a federation: their keys are registered, or removed."""

from __future__ import annotations

from fedbb.errors import RunError
from fedbb.flower.admin.certificates import public_bytes
from fedbb.flower.admin.control import DISMISSED, Control, Node
from fedbb.flower.admin.paths import FederationFolder, SiteFolder

NEW_KEY = (
    "to admit it again, delete node.key and node.pub in {folder} and make a new key with "
    "`fedbb flower certs`"
)


def admit(folder: FederationFolder, control: Control) -> list[str]:
    """Register the key of every site that has one and is not registered; return their names.

    A site that was dismissed stays out: Flower accepts no key twice.
    """
    known = {node.key for node in control.all_nodes()}
    admitted = []
    for site in folder.sites():
        if not site.public_key.exists():
            continue
        key = public_bytes(site.public_key)
        if key not in known:
            control.register(key, site.path.name)
            admitted.append(site.path.name)
    return admitted


def dismissed(folder: FederationFolder, control: Control) -> list[str]:
    """Return the names of sites with a folder here whose key was dismissed."""
    gone = {node.key for node in control.all_nodes() if node.status == DISMISSED}
    keyed = [site for site in folder.sites() if site.public_key.exists()]
    return [site.path.name for site in keyed if public_bytes(site.public_key) in gone]


def dismiss(control: Control, name: str) -> None:
    """Remove a site from the federation."""
    nodes = control.nodes()
    for node in nodes:
        if node.name == name:
            control.unregister(node.identity)
            return
    names = ", ".join(node.name for node in nodes) or "none"
    raise RunError(f"no site {name} is registered at {control.address}; registered: {names}")


def find_node(control: Control, site: SiteFolder) -> Node | None:
    """Return the node of a site, None if its key is not registered."""
    key = public_bytes(site.public_key)
    return next((node for node in control.nodes() if node.key == key), None)
