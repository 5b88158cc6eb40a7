"""What clients remember between rounds, a sealed file for each client and round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedbb.errors import RunError
from fedbb.records import ClientState
from fedbb.runs.checksummed import flatten_state, gather_state, load_sealed, part, save_sealed


@dataclass(frozen=True)
class ClientStateFiles:
    """A store in a folder, written by whichever process trained the client."""

    folder: Path

    def load(self, client: int, number: int) -> ClientState:
        """Return what a client kept in this round, or refuse a damaged file."""
        tensors, _ = load_sealed(self._path(client, number))
        model = gather_state(tensors, "model.")
        return ClientState(model if model.params else None, part(tensors, "momentum.") or None)

    def save(self, client: int, number: int, memory: ClientState) -> None:
        """Keep what a client remembers after this round; on disk when this returns."""
        tensors = {} if memory.model is None else flatten_state(memory.model, "model.")
        if memory.momentum is not None:
            tensors |= {f"momentum.{name}": tensor for name, tensor in memory.momentum.items()}
        path = self._path(client, number)
        try:
            save_sealed(path, tensors, {})
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
