"""Ways to divide a data set among clients; each function returns a `Partition`."""

from fedbb.partition.functions import (
    by_column,
    dirichlet,
    from_file,
    from_flwr,
    from_owners,
    iid,
    pathological,
    quantity,
    shards,
)
from fedbb.partition.label_distance import Skew, skew
from fedbb.partition.partition import Partition

__all__ = [
    "Partition",
    "Skew",
    "by_column",
    "dirichlet",
    "from_file",
    "from_flwr",
    "from_owners",
    "iid",
    "pathological",
    "quantity",
    "shards",
    "skew",
]
