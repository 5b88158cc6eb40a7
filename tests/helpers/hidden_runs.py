"""A run folder made private: its clients hidden, as their server would have it."""

import json

from helpers.run_builder import write


def hide(path):
    """Take out of a folder all that a private run does not tell, and put in its audit."""
    recipe = json.loads((path / "recipe.json").read_text())
    write(path / "recipe.json", recipe | {"privacy": "masked"})
    federation = json.loads((path / "federation.json").read_text())
    clients = [client["client"] for client in federation["clients"]]
    hidden = {"positives": None, "clients": [{"client": client} for client in clients]}
    write(path / "federation.json", federation | hidden)
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["clients"] = [
            {"client": client, "weight": None, "steps": None, "train_loss": None}
            for client in clients
        ]
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write(path / "audit.json", audit_of(clients, len(lines)))
    return path


def audit_of(clients, rounds):
    everyone = {"clients": clients, "absent": [], "attempts": 1}
    return {
        "format": "fedbb audit 1",
        "privacy": "masked",
        "clients": len(clients),
        "threshold": 3,
        "gamma": 1.0,
        "max_weight": 1.0,
        "statistics": everyone
        | {"samples": 400, "evenness": 20.0, "commitments": {"0": "ab" * 32, "1": "cd" * 32}},
        "rounds": [
            everyone | {"round": number, "weight": 1.0, "steps": 1.0, "change": 0.1, "sha256": ""}
            for number in range(1, rounds + 1)
        ],
    }
