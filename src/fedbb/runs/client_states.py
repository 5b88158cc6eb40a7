"""What clients remember between rounds, a sealed file for each client and round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedbb.errors import RunError
from fedbb.records import ClientState
from fedbb.runs.checksummed import load_sealed, save_sealed
from fedbb.state import flatten_client_state, unflatten_client_state


@dataclass(frozen=True)
class ClientStateFiles:
    """A store in a folder, written by whichever process trained the client."""

    folder: Path

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round, or refuse a damaged file."""
        tensors, _ = load_sealed(self._path(client, number))
        return unflatten_client_state(tensors)

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round; on disk when this returns."""
        path = self._path(client, number)
        try:
            save_sealed(path, flatten_client_state(memory), {})
        except OSError as error:
            raise RunError(
                f"round {number} could not be saved in {path.parent}: {error}; "
                "the rounds before it are kept, and --resume goes on from there"
            ) from error

    def forget(self, client: int, kept: int) -> None:
        """Delete all but the newest few memories of a client."""
        found = sorted(self.folder.glob(f"client-{client:06d}-*.safetensors"), reverse=True)
        for path in found[kept:]:
            path.unlink()

    def _path(self, client: int, number: int) -> Path:
        return self.folder / f"client-{client:06d}-round-{number:06d}.safetensors"
