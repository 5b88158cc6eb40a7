"""Federated averaging in NVFlare's simulator, every client in a process of its own.

With fewer it swaps clients between processes in every round, which takes far longer. The server
tells nothing of its rounds: one is over when the next one's first client begins, and the last one
when its last client ends.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import defaultdict
from pathlib import Path

import work
from network import SmallNetwork
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv


def main() -> None:
    options = work.read_options()
    notes = Path(options.folder).resolve() / "notes"
    notes.mkdir(parents=True)
    recipe = FedAvgRecipe(
        name="benchmark",
        model=SmallNetwork(),
        min_clients=options.clients,
        num_rounds=options.rounds,
        train_script=str(Path(__file__).with_name("client.py")),
        train_args=f"--images {options.images} --notes {notes}",
    )
    environment = SimEnv(
        num_clients=options.clients,
        num_threads=options.clients,
        workspace_root=str(Path(options.folder).resolve() / "simulation"),
    )
    with contextlib.redirect_stdout(sys.stderr):
        recipe.execute(environment)
    tell_rounds(notes)


def tell_rounds(notes: Path) -> None:
    """Tell of all rounds afterwards, from what the clients wrote down."""
    rounds = defaultdict(list)
    for path in notes.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            rounds[note["round"]].append(note)
    for number in sorted(rounds):
        later = [note["began"] for note in rounds.get(number + 1, [])]
        end = min(later) if later else max(note["ended"] for note in rounds[number])
        proofs = [work.Proof(**note["proof"]) for note in rounds[number]]
        work.tell(number + 1, sum(proofs, work.Proof()), end)


if __name__ == "__main__":
    main()
