"""Kill runs of methods that keep something and resume them; prints JSON.

Arguments: a folder, and names of methods. For each it prints whether the killed and resumed run has
the records, the server state and the clients' states of one that nobody disturbs, and how many
rounds were saved when it was killed. A process of its own, so that it can fork.
"""

import json
import signal
import sys
from copy import deepcopy
from pathlib import Path

import torch

from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.kills import end, forward_passes, kill_at
from helpers.small_run import small_recipe, without_seconds
from helpers.teachers import teacher_options

ROUNDS = 4
SKEW = {"kind": "label-skew", "clients": 4, "concentration": 0.5, "min_samples": 4}
NETWORKS = {"by_client": ["linear", {"name": "mlp", "options": {"hidden": [6]}}]}
CASES = {
    "local": {},
    "fedper": {},
    "fedrep": {},
    "ditto": {},
    "isfl": {"probe": 6},
    "pfedla": {"width": 6, "hn_lr": 0.1},
    "ripfl": {},
    "feddf": {"steps": 4, "batch_size": 8},
    "fedmd": {"batch_size": 8},
    "rhfl": {"batch_size": 8},
    "fedopt-sca": {"coding": "golomb"},
}
SERVER = {
    "fedadam": {"lr": 0.01},
    "scaffold": {},
    "feddyn": {},
    "fed-rod": {},
    "climb": {},
    "ccvr": {"features": 8},
    "creff": {"features": 4, "steps": 3, "epochs": 2},
    "clip2fl+fedlc": {"clip2fl": {"features": 4, "steps": 3, "epochs": 2}},
    "fedprox+fedir+lda-head": {"lda-head": {"restart": True}},
}
TURNS = {"fedmd in turn": "fedmd", "rhfl in turn": "rhfl"}
RINGS = {"fedbb on a ring": "fedbb"}
EVERY = (*CASES, *TURNS, *RINGS)


def recipe_of(folder, case, **changes):
    name = {**TURNS, **RINGS}.get(case, case)
    data = {"name": "npz", "path": str(folder / "small.npz"), "partition": SKEW}
    data["public"] = {"images": 12}
    rounds = {"number": ROUNDS, "participation": 0.7}
    if case in RINGS:
        rounds["topology"] = "ring"
    recipe = small_recipe(
        folder,
        data=data,
        model=NETWORKS if case in TURNS else {"name": "mlp", "options": {"hidden": [6]}},
        method={"name": name, "options": deepcopy({**CASES, **SERVER}.get(name, {}))},
        rounds=rounds,
        **changes,
    )
    for part, options in teacher_options(name, folder / "small.npz").items():
        recipe.method.options.setdefault(part, {}).update(options)
    return recipe


def kept(path):
    """Return the tensors of the server and of all clients after the last round."""
    last = load_checkpoint(path / "checkpoints" / f"round-{ROUNDS:06d}.safetensors")
    store = RunFolder(path).client_states
    found = {f"server {name}": tensor for name, tensor in last.server.items()}
    for client, number in last.state_rounds.items():
        tensors = store.load(client, number).tensors
        found |= {f"client {client} {name}": tensor for name, tensor in tensors.items()}
    return found


def kill_and_resume(folder, case):
    """Return whether the results are the same, and the rounds that were saved at the kill."""
    recipe = recipe_of(folder, case)
    whole, killed = (folder / f"{case}-{name}" for name in ("whole", "killed"))
    passes = forward_passes(lambda: list(run(recipe, whole)))

    def be_killed():
        kill_at(2 * passes // 3)
        list(run(recipe, killed))

    assert end(be_killed) == -signal.SIGKILL
    saved = len(RunFolder(killed).records())
    assert end(lambda: list(run(recipe, killed, resume=True))) == 0
    records = [without_seconds(RunFolder(path).records()) for path in (whole, killed)]
    sums = [RunFolder(path).read_json("summary.json")["sha256"] for path in (whole, killed)]
    one, two = kept(whole), kept(killed)
    same = one.keys() == two.keys() and all(one[name].equal(two[name]) for name in one)
    return [same and records[0] == records[1] and sums[0] == sums[1], saved]


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, cases = Path(sys.argv[1]), sys.argv[2:]
    print(json.dumps({case: kill_and_resume(place, case) for case in cases}))
