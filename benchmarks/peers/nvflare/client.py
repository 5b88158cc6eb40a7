"""A client of NVFlare's simulator: trains when asked, and writes down when and on what."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import nvflare.client as flare
import torch
import work
from network import SmallNetwork


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int)
    parser.add_argument("--notes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    flare.init()
    name = flare.get_site_name()
    client = int(name.rpartition("-")[2]) - 1
    model = SmallNetwork()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        began = time.monotonic()
        model.load_state_dict(received.params)
        proof = work.train(model, client, options.images)
        note = {"round": received.current_round, "began": began, "ended": time.monotonic()}
        with (Path(options.notes) / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(note | {"proof": asdict(proof)}) + "\n")
        flare.send(
            flare.FLModel(params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": proof.images})
        )


if __name__ == "__main__":
    main()
