"""Who belongs to a federation: registering the keys of its sites, and taking a site out."""

from __future__ import annotations

from fedbb.engine.flower.certificates import public_bytes
from fedbb.engine.flower.control import Control, Node
from fedbb.engine.flower.layout import FederationFolder, SiteFolder
from fedbb.errors import RunError


def admit(folder: FederationFolder, control: Control) -> list[str]:
    """Register the key of every site that has one and is not registered; return their names."""
    known = {node.key for node in control.nodes()}
    admitted = []
    for site in folder.sites():
        if not site.public_key.exists():
            continue
        key = public_bytes(site.public_key)
        if key not in known:
            _register(control, site, key)
            admitted.append(site.path.name)
    return admitted


def dismiss(control: Control, name: str) -> None:
    """Take a site out of the federation."""
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


def _register(control: Control, site: SiteFolder, key: bytes) -> None:
    try:
        control.register(key, site.path.name)
    except RunError as error:
        if "code: 23" not in str(error):
            raise
        raise RunError(
            f"the key of {site.path.name} was dismissed before, and Flower takes no key twice; "
            f"to take the site in again, delete {site.key.name} and {site.public_key.name} in "
            f"{site.path} and make a new key: fedbb flower certs"
        ) from error
