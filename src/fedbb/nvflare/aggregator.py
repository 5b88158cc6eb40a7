"""CBR as the aggregator of NVFlare's FedAvg."""

from __future__ import annotations

import csv
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedbb._util.text import quote
from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import ReplyError
from fedbb.imbalance import Reading
from fedbb.rounds.label_report import BalancedMean, Limits, Merged
from fedbb.rounds.replies import FARTHEST

NAME = "client_name"
"""The entry of a reply's meta data in which NVFlare's server notes whose it is."""

COLUMNS = ("round", "client", "samples", "dispersion", "uniform", "by_samples", "cbr", "weight")


class ClientBalancedAggregator(ModelAggregator):
    """Weights clients by how even their labels are, and rejects replies that do not fit.

    For `FedAvgRecipe(..., aggregator=ClientBalancedAggregator())`, for the workflow `FedAvg`, and
    for `ScatterAndGather`. Each reply must have the names, types and shapes of the model that was
    sent, finite values, and the figures that `report_label_statistics` adds at the client. A reply
    that does not is left out, and the weights of the others are scaled to sum to one. After each
    round a table goes to the log and to a file of the job: each client's report and weight, and
    the weights that it would have under equal weights, by samples, and under CBR without
    `max_weight`.

    Args:
        gamma: how far the weights follow the balance of labels, from 0 (by samples, FedAvg) to 1.
        reading: how the dispersion is defined; the clients' reports must have the same reading.
        floor: the smallest dispersion that counts: a perfectly balanced client would otherwise
            have infinite weight.
        max_weight: the largest weight of a client. It limits a client that reports false figures.
        max_norm: the largest L2 norm of a client's change of the model, as `defense.max_norm` in a
            recipe; by default what float32 can square.
        quorum: the fraction of the clients that took the task whose replies must be valid;
            otherwise the round leaves the model unchanged.
        table_file: where the table goes, in the server's folder of the job; "" writes none.

    Raises:
        ValueError: a value outside of its range.

    Example:
        `FedAvgRecipe(..., aggregator=ClientBalancedAggregator(max_weight=0.4, floor=0.01))`
    """

    def __init__(
        self,
        gamma: float = 1.0,
        reading: Reading = "share-std",
        floor: float = 1e-3,
        max_weight: float = 1.0,
        max_norm: float = FARTHEST,
        quorum: float = 0.5,
        table_file: str = "client_weights.csv",
    ) -> None:
        super().__init__()
        self._weighting = ClientBalanced(gamma, reading, floor)
        self._limits = Limits(quorum, max_weight, max_norm)
        # NVFlare writes a job from attributes that have the names of the arguments.
        self.gamma, self.reading, self.floor = gamma, reading, floor
        self.max_weight, self.max_norm, self.quorum = max_weight, max_norm, quorum
        self.table_file = table_file
        self._lock = threading.Lock()
        self._mean: BalancedMean | None = None
        self._sent: Mapping[str, object] = {}
        self._round: int | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Remember what the clients of a round are sent, and which of them took the task."""
        super().handle_event(event_type, fl_ctx)
        if event_type != AppEventType.BEFORE_TRAIN_TASK:
            return
        self.fl_ctx = fl_ctx
        with self._lock:
            if self._mean is None:
                shareable = fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE)
                self._begin(FLModelUtils.from_shareable(shareable))
            assert self._mean is not None
            self._mean.asked.add(_peer(fl_ctx))

    def accept_model(self, model: FLModel) -> None:
        """Check the reply of a client and keep it.

        Raises:
            ReplyError: what is wrong with it. FedAvg logs it and goes on without this client.
        """
        name = str(model.meta.get(NAME, ""))
        if not name:
            raise ReplyError("a reply without the name of its client")
        with self._lock:
            if self._mean is None:
                raise ReplyError(f"{name}: it was not asked")
            params, change = model.params, model.params_type == ParamsType.DIFF
            try:
                if not isinstance(params, Mapping):
                    raise ReplyError(f"its model is a {type(params).__name__}, not a dictionary")
                self._mean.add(
                    name,
                    lambda: to_arrays(params),
                    model.meta,
                    model.metrics or {},
                    is_change=change,
                )
            except ReplyError as error:
                raise ReplyError(f"{name} is left out: {error}") from error

    def aggregate_model(self) -> FLModel:
        """Return the mean of the valid replies, or the model that was sent if they are too few.

        Raises:
            RuntimeError: nothing was sent in this round.
        """
        with self._lock:
            mean, sent = self._mean, dict(self._sent)
            self._mean, self._sent = None, {}
        if mean is None:
            raise RuntimeError("aggregate_model needs a round in which clients were sent a model")
        merged = mean.merge()
        if merged is None:
            self.warning(
                f"{mean.valid} of {len(mean.asked)} clients count and {mean.least} are needed; "
                "the model is unchanged"
            )
            return FLModel(params_type=ParamsType.FULL, params=sent)
        self._tell(merged)
        kind = ParamsType.DIFF if merged.is_change else ParamsType.FULL
        params = {name: _like(sent[name], array) for name, array in merged.arrays.items()}
        return FLModel(params_type=kind, params=params, metrics=dict(merged.figures) or None)

    def reset_stats(self) -> None:
        """Forget the replies so far; a new round begins."""
        with self._lock:
            self._mean, self._sent = None, {}

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Take a reply from `ScatterAndGather`, which does not note whose it is."""
        self.fl_ctx = fl_ctx
        model = FLModelUtils.from_shareable(shareable, fl_ctx)
        model.meta[NAME] = _peer(fl_ctx)
        try:
            self.accept_model(model)
        except ReplyError as error:
            self.error(str(error))
            return False
        return True

    def _begin(self, model: FLModel) -> None:
        params = model.params
        if not isinstance(params, Mapping) or not params:
            raise ValueError("the server's model is empty; give the job an initial model")
        self._sent, self._round = dict(params), model.current_round
        self._mean = BalancedMean(to_arrays(params), self._weighting, self._limits)

    def _tell(self, merged: Merged) -> None:
        """Write the weights of the round to the log and to the file of the job."""
        number = self._round
        rows = [
            (number, name, row.samples, row.dispersion, *weights)
            for name, row in zip(merged.names, merged.weights, strict=True)
            for weights in [(row.uniform, row.by_samples, row.cbr, row.weight)]
        ]
        self.info(f"client weights of round {number}:\n{format_table(rows)}")
        if self.table_file:
            workspace = self.fl_ctx.get_engine().get_workspace()
            folder = Path(workspace.get_run_dir(self.fl_ctx.get_job_id()))
            path = folder / self.table_file
            is_new = not path.exists()
            with path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                if is_new:
                    writer.writerow(COLUMNS)
                writer.writerows(rows)


def to_arrays(params: Mapping[str, object]) -> dict[str, npt.NDArray[Any]]:
    """Return parameters as numpy arrays, whether they are arrays, tensors or still on disk.

    Raises:
        ReplyError: an entry that is none of these, or of a type that numpy has not.
    """
    return {str(name): _to_array(str(name), value) for name, value in params.items()}


def _to_array(name: str, value: object) -> npt.NDArray[Any]:
    load = getattr(value, "materialize", None)  # NVFlare's reference to a tensor on disk
    value = load() if callable(load) else value
    if isinstance(value, torch.Tensor):
        try:
            return np.asarray(value.detach().cpu().numpy())
        except TypeError as error:
            raise ReplyError(f"arrays: {name} has type {value.dtype}, not one of numpy") from error
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)  # the difference of two arrays without dimensions is a number
    raise ReplyError(f"arrays: {name} is {quote(value)}, not an array")


def _like(sent: object, array: npt.NDArray[Any]) -> object:
    return torch.from_numpy(array) if isinstance(sent, torch.Tensor) else array


def _peer(fl_ctx: FLContext) -> str:
    """Return the name of the client that the server is serving."""
    peer = fl_ctx.get_peer_context()
    return str(peer.get_identity_name()) if peer else ""


def format_table(rows: list[tuple[Any, ...]]) -> str:
    """Return the weights of a round as text, the largest first."""
    width = max(len("client"), *(len(row[1]) for row in rows))
    head = f"{'client':<{width}} {'samples':>9} {'dispersion':>10}"
    lines = [head + "".join(f" {name:>10}" for name in COLUMNS[4:])]
    for _, client, samples, spread, *weights in sorted(rows, key=lambda row: -row[-1]):
        figures = "".join(f" {weight:>10.4f}" for weight in weights)
        lines.append(f"{client:<{width}} {samples:>9} {spread:>10.4f}{figures}")
    return "\n".join(lines)
