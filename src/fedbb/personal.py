"""The personal part of a method: which entries, or which second model, stay with each client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedbb.models.base import classifier_name, name_of
from fedbb.records import FloatArray, ModelState, Tensors
from fedbb.state import replace_entries

PERSONAL = "personal."
"""Prefix of what a client keeps for the personal part, among the tensors of its state."""

Part = Literal["all", "head", "batch-norms", "norms", "buffers"]
"""A part of a network: all of it, its classifier, its batch normalization, all normalization, what
is only tracked."""

PARTS: dict[Part, str] = {
    "all": "the whole model",
    "head": "the classifier",
    "batch-norms": "the batch normalization",
    "norms": "the normalization",
    "buffers": "a set of running statistics",
}
"""The parts in words."""

BATCH_NORMS = (_NormBase,)
NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
"""Kinds of layers; instance normalization is a `_NormBase` like batch normalization."""

OwnLoss = Literal["plain", "method"]


@dataclass(frozen=True)
class Stage:
    """Some epochs of a client's round in which a part of the network is trained.

    Args:
        epochs: how many.
        frozen: the parameters that stay as they are, by name.
    """

    epochs: int
    frozen: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Personal:
    """A model of which nothing stays with the client; others derive from it.

    What a client keeps never leaves it. Entries of the shared model that it keeps are sent back as
    they came, so that shapes, checks and secure sums are those of FedAvg.

    Attributes:
        shares_model: whether the merged model can be used as it is. If not, a run is scored by
            the models of its clients.
        second: the model of its own that a client trains beside the shared one, if it does.
    """

    shares_model: ClassVar[bool] = True

    @property
    def keeps_all(self) -> bool:
        """Whether the whole model stays with the client, so that clients' networks may differ."""
        return False

    @property
    def keeps_buffers(self) -> bool:
        """Whether all buffers stay with the client, so that they need not be sent."""
        return False

    @property
    def title(self) -> str:
        """What stays with the client, in words."""
        return "nothing"

    @property
    def second(self) -> OwnModel | None:
        """The model of its own that a client trains beside the shared one, if it does."""
        return None

    def check(self, network: nn.Module) -> None:
        """Refuse a network, before a run begins, of which the part cannot stay with clients.

        Raises:
            ValueError: why it cannot.
        """

    def entries(self, network: nn.Module) -> frozenset[str]:
        """Return the entries of the network's state that stay with the client."""
        return frozenset()

    def stages(self, network: nn.Module, epochs: int) -> tuple[Stage, ...]:
        """Return how a client trains in a round, given the epochs of the settings."""
        return (Stage(epochs),)

    def epochs(self, epochs: int) -> int:
        """Return the epochs of all stages, given those of the settings."""
        return epochs

    def received(
        self, network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]
    ) -> dict[str, Tensor]:
        """Return what a client keeps of how the model that it received does on its samples.

        Args:
            network: the network with that model, in evaluation mode.
            batches: all samples of the client, in the order of its rows.
        """
        return {}

    def fuse(self, own: FloatArray, shared: FloatArray, kept: Tensors) -> FloatArray | None:
        """Return logits (N, C) of the client's and the shared model together; None if apart.

        Args:
            own: logits of the client's model.
            shared: logits of the shared model.
            kept: what the client keeps for this part.
        """
        return None

    def model(self, shared: ModelState, first: ModelState, kept: Tensors) -> ModelState:
        """Return the model that serves a client.

        Args:
            shared: the global model.
            first: the model that the run began with.
            kept: what the client keeps for this part; empty if it never took part.
        """
        return replace_entries(shared, kept)


@dataclass(frozen=True)
class KeptEntries(Personal):
    """A part of the network stays with the client, and the rest is shared.

    Args:
        part: "all" (local training), "head" (FedPer, FedRep), "batch-norms" or "norms" (FedBN), or
            "buffers", such as running statistics.
        head_epochs: epochs in which the kept part is trained alone, before the rest is trained
            alone (FedRep); None to train both together.

    Raises:
        ValueError: the part is unknown, or the epochs are below 0 or not for a part alone.
    """

    part: Part = "head"
    head_epochs: int | None = None
    shares_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise ValueError(f"the part that stays is one of {', '.join(get_args(Part))}")
        if self.head_epochs is not None and (self.head_epochs < 0 or self.part == "all"):
            raise ValueError("head_epochs must be at least 0, for a part of the network")

    @property
    def keeps_all(self) -> bool:
        """Whether the whole model stays with the client."""
        return self.part == "all"

    @property
    def keeps_buffers(self) -> bool:
        """Whether all buffers stay with the client."""
        return self.part in ("all", "buffers")

    @property
    def title(self) -> str:
        """What stays with the client, in words."""
        return PARTS[self.part]

    def check(self, network: nn.Module) -> None:
        """Refuse a network without the part, or without anything else."""
        if self.part == "all":
            return
        kept = self.entries(network)
        if not kept:
            raise ValueError(
                f"{self.title} stays with the clients, and {name_of(network)} has none"
            )
        if not any(p.requires_grad for name, p in network.named_parameters() if name not in kept):
            raise ValueError(
                f"nothing that is trained would be shared: {name_of(network)} has no trained "
                f"parameter besides {self.title}"
            )

    def entries(self, network: nn.Module) -> frozenset[str]:
        """Return the entries of the network's state that stay with the client."""
        if self.part == "all":
            return frozenset(network.state_dict())
        if self.part == "buffers":
            trained = {name for name, _ in network.named_parameters(remove_duplicate=False)}
            return frozenset(network.state_dict()) - trained
        if self.part == "head":
            name = classifier_name(network)
            return _entries_of(network, () if name is None else (name,))
        kinds = NORMS if self.part == "norms" else BATCH_NORMS
        # By type: names such as "bn" miss the norms of shortcuts, which are "downsample.1".
        return _entries_of(
            network, [name for name, part in network.named_modules() if isinstance(part, kinds)]
        )

    def stages(self, network: nn.Module, epochs: int) -> tuple[Stage, ...]:
        """Return one stage, or two: the kept part alone, then the rest alone."""
        if self.head_epochs is None:
            return (Stage(epochs),)
        kept = self.entries(network)
        every = {name for name, _ in network.named_parameters()}
        head, body = Stage(self.head_epochs, frozenset(every - kept)), Stage(epochs, kept)
        return (head, body) if self.head_epochs else (body,)

    def epochs(self, epochs: int) -> int:
        """Return the epochs of all stages."""
        return epochs + (self.head_epochs or 0)


@dataclass(frozen=True)
class TrainedPart(Personal):
    """Nothing stays with the client, and only a part of the network is trained.

    Args:
        part: the part that is trained.
    """

    part: Part = "all"

    def check(self, network: nn.Module) -> None:
        """Refuse a network of which nothing would be trained."""
        part = KeptEntries(self.part).entries(network)
        if not any(p.requires_grad for name, p in network.named_parameters() if name in part):
            raise ValueError(f"{PARTS[self.part]} has no trained parameter in {name_of(network)}")

    def stages(self, network: nn.Module, epochs: int) -> tuple[Stage, ...]:
        """Return the one stage in which all but the part is frozen."""
        part = KeptEntries(self.part).entries(network)
        every = {name for name, _ in network.named_parameters()}
        return (Stage(epochs, frozenset(every - part)),)


@dataclass(frozen=True)
class OwnModel(Personal):
    """Ditto (Li et al. 2021): a second model of the client's own, pulled towards the shared one.

    It is trained on the batches of the shared model, minimizes F(v) + (lam/2)·‖v − w‖² for the
    model w that the round started from, and has its own random numbers.

    Args:
        lam: strength of the pull; at 0 the model is the client's alone.
        own_epochs: epochs of its training in a round; None for those of the settings.
        own_loss: "plain" cross-entropy, which suits the client's own mix of labels, or the loss of
            the "method".

    Raises:
        ValueError: a value is out of range.
    """

    lam: float = 1.0
    own_epochs: int | None = None
    own_loss: OwnLoss = "plain"

    def __post_init__(self) -> None:
        if not 0.0 <= self.lam < float("inf"):
            raise ValueError(f"lam must be a finite number of at least 0, not {self.lam}")
        if self.own_epochs is not None and self.own_epochs < 1:
            raise ValueError(f"own_epochs must be at least 1, not {self.own_epochs}")
        if self.own_loss not in get_args(OwnLoss):
            raise ValueError(f"own_loss must be one of {', '.join(get_args(OwnLoss))}")

    @property
    def title(self) -> str:
        """What stays with the client, in words."""
        return "a second model"

    @property
    def second(self) -> OwnModel:
        """The model of its own that a client trains."""
        return self

    def model(self, shared: ModelState, first: ModelState, kept: Tensors) -> ModelState:
        """Return the client's own model, which is the run's first one before it took part."""
        return replace_entries(first, kept)


def _entries_of(network: nn.Module, modules: Iterable[str]) -> frozenset[str]:
    """Return the entries of modules, and every other name of a parameter that they share."""
    prefixes = tuple(f"{name}." if name else "" for name in modules)
    named = dict(network.named_parameters(remove_duplicate=False))
    own = {name for name in network.state_dict() if name.startswith(prefixes)}
    shared = {id(named[name]) for name in own if name in named}
    return frozenset(own | {name for name, tensor in named.items() if id(tensor) in shared})
