"""A grid whose cells run in a fraction of a second each, on an .npz made here."""

from helpers.small_run import write_npz

GRID = """
title = "Small"
caption = "Two methods at two rates."
source = "Table 9"
seeds = [0, 1]
rows = "method"
columns = ["rate"]
metrics = ["accuracy"]

[recipe.data]
name = "npz"
path = "{data}"
partition = {{ kind = "even", clients = 3 }}
[recipe.local]
batch_size = 8
[recipe.rounds]
number = 3

[[axis]]
name = "method"
[[axis.value]]
label = "FedAvg"
set = {{ "method.name" = "fedavg" }}
[[axis.value]]
label = "FedBB"
set = {{ "method.name" = "fedbb" }}

[[axis]]
name = "rate"
[[axis.value]]
label = "η = 0.05"
set = {{ "local.lr" = 0.05 }}
[[axis.value]]
label = "η = 0.1"
set = {{ "local.lr" = 0.1 }}
"""


def grid_text(folder):
    """Return the text of a small grid, with its data in this folder."""
    return GRID.format(data=write_npz(folder / "small.npz"))


def write_grid(folder, name="small.toml", change=lambda text: text):
    """Write a small grid, changed if so wished, and return its path."""
    path = folder / name
    path.write_text(change(grid_text(folder)), "utf-8")
    return path


def write(path, text):
    path.write_text(text, "utf-8")
    return path
