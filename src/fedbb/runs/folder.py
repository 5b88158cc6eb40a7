"""The folder of a run: the resolved recipe, the partition, a line for each round, checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from filelock import FileLock, Timeout

from fedbb._util.files import (
    TEMPORARY,
    explain_error,
    parse_json,
    remove_leftovers,
    replacing,
    why_unreadable,
)
from fedbb._util.text import quote
from fedbb.errors import DivergedError, QuorumError, RunError
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState, Tensors
from fedbb.runs.checkpoint import Checkpoint, ClientStateFiles, load_checkpoint, save_checkpoint
from fedbb.runs.model_info import MODEL_INFO, as_metadata
from fedbb.simulation.inline import ClientStateStore, InMemoryStore
from fedbb.state import find_difference, find_mismatch

Record = dict[str, Any]

LOCK = ".lock"
STATES = "memories"
"""Sub-folder of the clients' states, which they keep between rounds."""

PRIVATE_STATES = "parties/memories"
"""The same in a private run, whose server must not read them."""

CLIENTS_FILE = "cards.json"
"""What a run on Flower keeps of its clients; it names the run at the sites."""

SCORES = "scores.json"
"""All scores of the final and the best model."""

FILES = (
    "recipe.json",
    "partition.json",
    "federation.json",
    "environment.json",
    MODEL_INFO,
    "rounds.jsonl",
    "summary.json",
    SCORES,
    "best.safetensors",
    "final.safetensors",
    "checkpoints",
    STATES,
    LOCK,
)
FURTHER = ("clients.npz", CLIENTS_FILE, "audit.json", "roster.json", "aggregator.key", "parties")
"""What large runs, runs on Flower and private runs have beside these."""


class RoundScores(Protocol):
    """What a folder keeps of the scores of a round's model."""

    @property
    def decision(self) -> Mapping[str, Any]:
        """How the model decides, if otherwise than by its plain outputs."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        ...


KEPT = 2
"""Checkpoints in all, and states of one client, so that the last but one can take over."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Attributes:
        path: The folder.
        states: Sub-folder of the clients' states.
    """

    path: Path
    states: str = STATES

    def file(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.path / name

    def read_json(self, name: str) -> Any:
        """Return what a JSON file of the folder holds."""
        path = self.file(name)
        try:
            return parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {explain_error(error)}") from error

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder."""
        with replacing(self.file(name)) as file:
            file.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def is_run(self) -> bool:
        """Return whether a run was set up here; its recipe is the last file of the set-up.

        Raises:
            RunError: The folder cannot be read.
        """
        try:
            self.file("recipe.json").stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise RunError(f"{self.path} {why_unreadable(error, self.path)}") from error
        return True

    def check_run(self) -> None:
        """Refuse a folder that holds no run.

        Raises:
            RunError: It holds none, or cannot be read.
        """
        if self.is_run():
            return
        why = "it has no recipe.json" if self.path.is_dir() else "it is a file"
        why = why if self.path.exists() else "it does not exist"
        raise RunError(f"{self.path} is not a run folder: {why}")

    def is_held(self) -> bool:
        """Return whether a process, which may be this one, has the folder for itself."""
        if not self.file(LOCK).exists():
            return False
        try:
            with FileLock(self.file(LOCK), blocking=False):
                return False
        except Timeout:
            return True
        except OSError:  # it belongs to somebody else, who may be at work or not
            return False

    def has_rounds(self) -> bool:
        """Return whether a round was finished here."""
        return bool(self._checkpoints())

    def commit(
        self,
        record: Record,
        checkpoint: Checkpoint,
        *,
        best: bool,
        served: ModelState | None = None,
    ) -> None:
        """Save a finished round; it counts from the moment its checkpoint is in place.

        Args:
            record: The round as rounds.jsonl holds it.
            checkpoint: The model after it; the client states that it names are on disk.
            best: Whether the round is the best so far.
            served: The model to deploy, if it is not the trained one.

        Raises:
            RunError: The disk is full, or the folder cannot be written.
        """
        kept = "the rounds before it are kept, and --resume continues from there"
        with self._saving(f"round {checkpoint.round}", kept):
            if best:
                self.save_model("best.safetensors", checkpoint, served)
            with self.file("rounds.jsonl").open("ab") as lines:
                lines.write((json.dumps(record) + "\n").encode())
                lines.flush()
                os.fsync(lines.fileno())
            bound = replace(checkpoint, run=self._run_digest())
            save_checkpoint(self._checkpoint(checkpoint.round), bound)
            self._forget(checkpoint)

    def save_model(
        self,
        name: str,
        checkpoint: Checkpoint,
        served: ModelState | None = None,
        scores: RoundScores | None = None,
    ) -> None:
        """Write the model to deploy with what it needs outside the run, and how it decides."""
        path = self.file(MODEL_INFO)
        decision = {} if scores is None else scores.decision
        # A run folder of an older version has no description.
        info = {**self.read_json(MODEL_INFO), **decision} if path.exists() else None
        described = None if info is None else as_metadata(info)
        model = checkpoint.state if served is None else served
        save_checkpoint(self.file(name), replace(checkpoint, state=model, server={}), described)

    def finish(
        self,
        last: Checkpoint,
        summary: Mapping[str, Any],
        served: ModelState | None = None,
        scores: Mapping[str, RoundScores] | None = None,
    ) -> None:
        """Write the final model, all scores and the summary, which closes the run.

        Args:
            last: The last checkpoint.
            summary: What summary.json holds.
            served: The model to deploy, if it is not the trained one.
            scores: All scores of the "final" and the "best" model, if they are known.

        Raises:
            RunError: The disk is full, or the folder cannot be written.
        """
        kept = "all rounds are kept, and --resume writes what is missing"
        with self._saving("the final model", kept):
            if scores:
                plain = {name: found.to_json() for name, found in scores.items()}
                with replacing(self.file(SCORES)) as file:
                    file.write((json.dumps(plain, ensure_ascii=False) + "\n").encode())
                if "best" in scores and scores["best"].decision:
                    leader = load_checkpoint(self.file("best.safetensors"))
                    self.save_model("best.safetensors", leader, scores=scores["best"])
            self.save_model("final.safetensors", last, served, (scores or {}).get("final"))
            self.write_json("summary.json", summary)

    def best_model(self) -> ModelState | None:
        """Return the model of the best round so far; None if it was removed."""
        path = self.file("best.safetensors")
        return load_checkpoint(path).state if path.exists() else None

    def latest(
        self, first: ModelState | None = None, server: Tensors | None = None
    ) -> Checkpoint | None:
        """Return the newest checkpoint that is intact and of this run.

        There is a warning for each that is not.

        Args:
            first: The state that the run began with, whose names, types and shapes a checkpoint
                must have; None does not check them.
            server: The server state that it began with, likewise.

        Raises:
            RunError: There are checkpoints, and none can be used.
        """
        damaged = []
        for path in self._checkpoints():
            try:
                checkpoint = load_checkpoint(path)
                self._check(path, checkpoint, first, server)
                return checkpoint
            except RunError as error:
                warnings.warn(f"{error}; the one before it is used", RuntimeWarning, stacklevel=2)
                damaged.append(path.name)
        if damaged:
            raise RunError(f"{self.path} has no usable checkpoint left ({', '.join(damaged)})")
        return None

    def _check(
        self,
        path: Path,
        checkpoint: Checkpoint,
        first: ModelState | None,
        server: Tensors | None,
    ) -> None:
        """Refuse a checkpoint of another run, round or network, however intact it is."""
        if checkpoint.run not in (None, self._run_digest()):
            raise RunError(f"checkpoint {path} cannot be used: it is of another run")
        if path != self._checkpoint(checkpoint.round):
            raise RunError(f"checkpoint {path} cannot be used: it is of round {checkpoint.round}")
        name = None if first is None else find_mismatch(first, checkpoint.state)
        if name is not None:
            raise RunError(
                f"checkpoint {path} cannot be used: the run's network differs from it in "
                f"{quote(name, 80)}"
            )
        name = None if server is None else find_difference(server, checkpoint.server)
        if name is not None:
            raise RunError(
                f"checkpoint {path} cannot be used: the run's server state differs from it in "
                f"{quote(name, 80)}"
            )

    def _run_digest(self) -> str | None:
        """Return the SHA-256 of the recipe as far as results depend on it; None without one."""
        if not self.is_run():
            return None
        return _recipe_digest(json.dumps(self.read_json("recipe.json")), self.path)

    @property
    def client_states(self) -> ClientStateFiles:
        """What clients keep between rounds, in files that the checkpoints name."""
        return ClientStateFiles(self.file(self.states))

    def records(self) -> list[Record]:
        """Return the records of all rounds; a last line torn by a crash is left out."""
        path = self.file("rounds.jsonl")
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")
        try:
            records = [parse_json(line) for line in lines[:-1]]
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from error
        for number, record in enumerate(records, start=1):
            if not isinstance(record, dict) or type(record.get("round")) is not int:
                raise RunError(f"{path} is damaged: line {number} is not a record of a round")
        return records

    def rewind(self, rounds: int) -> list[Record]:
        """Drop the lines of rounds that were not committed, and return the others.

        Raises:
            RunError: Lines are missing or damaged, or the folder cannot be written.
        """
        records = self.records()
        if len(records) < rounds:
            raise RunError(f"{self.file('rounds.jsonl')} holds {len(records)} of {rounds} rounds")
        if [record["round"] for record in records] != list(range(1, len(records) + 1)):
            raise RunError(f"{self.file('rounds.jsonl')} does not hold rounds 1, 2, … in order")
        kept = "the rounds in it are kept, and --resume continues from there"
        with self._saving("rounds.jsonl", kept), replacing(self.file("rounds.jsonl")) as file:
            file.writelines((json.dumps(record) + "\n").encode() for record in records[:rounds])
        return records[:rounds]

    @contextmanager
    def _saving(self, what: str, kept: str) -> Iterator[None]:
        """Turn a write that fails in the block into a RunError that says what is kept."""
        try:
            yield
        except OSError as error:
            why = explain_error(error)
            raise RunError(f"{what} could not be saved in {self.path}: {why}; {kept}") from error

    def _checkpoint(self, number: int) -> Path:
        return self.file("checkpoints") / f"round-{number:06d}.safetensors"

    def _forget(self, newest: Checkpoint) -> None:
        """Delete checkpoints, and states of this round's clients, that no kept one refers to."""
        for path in self._checkpoints()[KEPT:]:
            path.unlink()
        clients = [client for client, since in newest.state_rounds.items() if since == newest.round]
        for client in clients:
            self.client_states.keep_newest(client, KEPT)

    def _checkpoints(self) -> list[Path]:
        return sorted(self.file("checkpoints").glob("round-*.safetensors"), reverse=True)


@lru_cache(maxsize=8)  # every round asks for it
def _recipe_digest(recipe: str, path: Path) -> str:
    """Return the SHA-256 of a recipe, given as JSON, as far as results depend on it."""
    made = make_recipe(json.loads(recipe), f"recipe of {path}")
    values = made.decisive.model_dump(mode="json", exclude={"name"})
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def lock_folder(path: Path, name: str, inner: Sequence[str] = (".",)) -> tuple[FileLock, bool]:
    """Make a folder if need be, and lock out other processes.

    Args:
        path: The folder.
        name: The file of the lock in it.
        inner: Sub-folders to make.

    Returns:
        The lock, and whether the folder is new.

    Raises:
        RunError: The folder cannot be written, or another process uses it.
    """
    try:
        is_new = not path.exists()  # refused too where the folder above cannot be searched
        for part in inner:
            (path / part).mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / name)
        lock.acquire(blocking=False)
    except Timeout:
        raise RunError(f"{path} is in use by another process") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {explain_error(error)}") from error
    return lock, is_new


@contextmanager
def hold(
    path: Path, *, states: str = STATES, lasting: tuple[type[Exception], ...] = ()
) -> Iterator[RunFolder]:
    """Make the folder if need be, lock out other processes, and remove what a crash left.

    A folder that was made here is removed if the block fails before a run is set up in it: it
    must not stand in the way of the corrected command.

    Args:
        path: The folder.
        states: Sub-folder of the clients' states.
        lasting: Errors that a resume would end with too; the folder is then removed unless a round
            was finished.

    Raises:
        RunError: The folder cannot be written, or another process uses it.
    """
    lock, is_new = lock_folder(path, LOCK, ("checkpoints", states))
    folder = RunFolder(path, states)
    try:
        for place in (path, path / "checkpoints", path / states, (path / states).parent):
            remove_leftovers(place)
        yield folder
    except BaseException as error:
        # Sites on Flower may know a run by its name already, although its set-up was cut short.
        begun = folder.is_run() or folder.file(CLIENTS_FILE).exists()
        vain = isinstance(error, lasting) and not folder.has_rounds()
        if is_new and (vain or not begun):
            shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        lock.release()


@dataclass(frozen=True)
class TemporaryStore:
    """What a run without a folder keeps: nothing but the clients' states, while it lasts.

    Attributes:
        client_states: What clients keep between rounds.
    """

    client_states: ClientStateStore

    def commit(
        self,
        record: Record,
        checkpoint: Checkpoint,
        *,
        best: bool,
        served: ModelState | None = None,
    ) -> None:
        """Keep nothing: the consumer of the rounds keeps what it needs."""

    def finish(
        self,
        last: Checkpoint,
        summary: Mapping[str, Any],
        served: ModelState | None = None,
        scores: Mapping[str, RoundScores] | None = None,
    ) -> None:
        """Keep nothing."""

    def latest(
        self, first: ModelState | None = None, server: Tensors | None = None
    ) -> Checkpoint | None:
        """Return no checkpoint."""
        return None

    def rewind(self, rounds: int) -> list[Record]:
        """Return no records."""
        return []


@contextmanager
def open_store(
    recipe: Recipe, path: Path | None, workers: int
) -> Iterator[RunFolder | TemporaryStore]:
    """Open what keeps a run: its folder, or memory.

    Without a folder, temporary files hold what worker processes share, and what the parties of a
    private run keep.

    Args:
        recipe: The settings of the run.
        path: Folder of the run; None for none.
        workers: Number of worker processes.

    Raises:
        RunError: The folder cannot be written, or another process uses it.
    """
    states = STATES if recipe.privacy == "none" else PRIVATE_STATES
    with ExitStack() as stack:
        if path is None and recipe.privacy == "none" and not workers:
            yield TemporaryStore(InMemoryStore())
        elif path is None:
            path = Path(stack.enter_context(TemporaryDirectory()))
            if recipe.privacy == "none":
                yield TemporaryStore(ClientStateFiles(path))
            else:
                yield stack.enter_context(hold(path / "run", states=states))
        else:
            yield stack.enter_context(
                hold(path, states=states, lasting=(DivergedError, QuorumError))
            )


def check_foreign(path: Path) -> None:
    """Refuse a folder that holds anything that is not a run's."""
    try:
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file; a run needs a folder")
        names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    except OSError as error:
        raise RunError(f"{path} {why_unreadable(error, path)}") from error
    known = {name for name in names if name in (*FILES, *FURTHER) or name.endswith(TEMPORARY)}
    foreign = sorted(names - known)
    if foreign:
        raise RunError(
            f"{path} holds other files than those of a run, such as {foreign[0]}; choose another"
        )
