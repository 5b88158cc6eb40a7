"""A trained model that takes raw inputs and returns probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedbb._util.files import parse_json
from fedbb.data.sets.features import read_table, table_of_frame
from fedbb.data.transforms import as_pixels, zero_batch
from fedbb.errors import DataError, RunError
from fedbb.evaluation.metrics import one_hot
from fedbb.evaluation.score_report import predict_by_thresholds, probabilities_of
from fedbb.methods import fedavg
from fedbb.methods.topology import with_topology
from fedbb.models.base import run_network
from fedbb.models.registry import MODELS, build_model, materialize
from fedbb.personal import PERSONAL
from fedbb.recipes.check import method_of
from fedbb.recipes.spec import PythonRecipe
from fedbb.records import FloatArray, ModelState, Task
from fedbb.rounds.server_steps import ServerSteps
from fedbb.runs.checkpoint import Checkpoint, load_checkpoint, read_model_metadata
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import read_federation, read_run_recipe
from fedbb.runs.model_info import ModelInfo
from fedbb.state import find_difference, replace_entries, restore, select, snapshot

BATCH = 256


class InferenceModel(nn.Module):
    """A trained network with the preparation of its inputs: raw inputs in, probabilities out.

    Pixels of type uint8 are scaled to [0, 1]; floats are taken as they are; both are normalized by
    the statistics of the training data if the network was trained so.

    Args:
        network: The trained network, which returns logits.
        info: Its input, classes and origin.
    """

    mean: Tensor
    std: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, info: ModelInfo) -> None:
        super().__init__()
        self.network, self.info = network, info
        shape = (-1, *(1 for _ in info.input_shape[1:]))
        for name, values in (("mean", info.mean), ("std", info.std)):
            statistics = torch.tensor(values, dtype=torch.float32).view(shape)
            self.register_buffer(name, statistics, persistent=False)
        shift = torch.tensor(info.logit_shift or (), dtype=torch.float32)
        self.register_buffer("shift", shift, persistent=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by number."""
        return self.info.classes

    @property
    def task(self) -> Task:
        """Multi-class or multi-label."""
        return Task(self.info.task)

    def logits(self, inputs: Tensor) -> Tensor:
        """Return the logits (N, C) of raw inputs, adjusted if the model is (`info.logit_shift`)."""
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(torch.float32) / 255
        if len(self.info.mean):
            inputs = (inputs.to(torch.float32) - self.mean) / self.std
        logits = run_network(self.network, inputs).logits
        return logits if self.info.logit_shift is None else logits + self.shift

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the probabilities (N, C) of raw inputs.

        Args:
            inputs: A batch; one input has the shape `info.input_shape`.
        """
        logits = self.logits(inputs)
        return logits.softmax(dim=1) if self.task is Task.MULTICLASS else logits.sigmoid()

    def encode(self, rows: Any, *, allow_unknown: bool = False) -> npt.NDArray[np.float32]:
        """Return the inputs (N, features) of rows of a raw table, as in training.

        Args:
            rows: A frame of pandas or Polars, a mapping of columns, or a CSV, parquet or .npz file,
                with the columns of the training data in any order.
            allow_unknown: Whether a category that no training row had is encoded as zeros.

        Raises:
            DataError: The model was not trained on a table, a column is missing, or a value cannot
                be encoded; the message names its row.
        """
        if self.info.table is None:
            raise DataError("the model was not trained on a table of named columns; give an array")
        is_file = isinstance(rows, str | Path)
        table = read_table(Path(rows)) if is_file else table_of_frame(rows, "the table")
        return self.info.table.encode(table, allow_unknown=allow_unknown)

    def predict(self, inputs: Any, *, batch_size: int = BATCH) -> FloatArray:
        """Return the probabilities (N, C) of raw inputs.

        Args:
            inputs: An array (N, …), or for a model of a table a frame or a mapping of columns.
            batch_size: Inputs per forward pass.

        Raises:
            DataError: The inputs have another shape or type than the model takes.
        """
        return self.probabilities(self.predict_logits(inputs, batch_size=batch_size))

    def probabilities(self, logits: FloatArray) -> FloatArray:
        """Return the probabilities of logits (N, C)."""
        return probabilities_of(logits, self.task)

    def decide(self, probabilities: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which classes the model predicts, (N, C): by its thresholds if it has some.

        Otherwise the most probable class, or each label with a probability above one half.

        Args:
            probabilities: What `predict` returned, (N, C).
        """
        if self.info.thresholds is not None:
            return predict_by_thresholds(self.task, probabilities, self.info.thresholds)
        if self.task is Task.MULTILABEL:
            return np.asarray(probabilities > 0.5)
        return one_hot(probabilities.argmax(axis=1), len(self.classes))

    @torch.inference_mode()
    def predict_logits(self, inputs: Any, *, batch_size: int = BATCH) -> FloatArray:
        """Return the logits (N, C) of raw inputs in float64; see `predict`."""
        has_columns = isinstance(inputs, Mapping) or (
            self.info.table is not None and hasattr(inputs, "columns")
        )
        array = self.encode(inputs) if has_columns else np.asarray(inputs)
        array = check_inputs(array, self.info)
        self.eval()
        try:
            parts = [
                self.logits(torch.tensor(array[start : start + batch_size])).double().numpy()
                for start in range(0, len(array), batch_size)
            ]
        except IndexError as error:
            if array.dtype.kind != "i":
                raise
            raise DataError(
                f"the model does not know all token ids from {array.min()} to {array.max()}"
            ) from error
        return np.concatenate(parts)


def check_inputs(array: npt.NDArray[Any], info: ModelInfo) -> npt.NDArray[Any]:
    """Return inputs in the shape and type that the model takes.

    Raises:
        DataError: There are none, they have another shape, or their values cannot be meant.
    """
    if array.ndim == 0 or len(array) == 0:
        raise DataError("there are no inputs to predict")
    if tuple(array.shape[1:]) != info.input_shape:
        raise DataError(
            f"the inputs have shape {_shape(array.shape[1:])}, and the model takes "
            f"{_shape(info.input_shape)}"
        )
    kind, takes = array.dtype.kind, info.input_dtype
    if kind not in "biuf" or (takes.startswith("int") and kind not in "iu"):
        wanted = "whole numbers (token ids)" if takes.startswith("int") else "numbers"
        raise DataError(f"the inputs are {array.dtype}, and the model takes {wanted}")
    if takes.startswith("int"):
        return array.astype(takes)
    if kind == "f":
        return _check_floats(array.astype(np.float32), takes)
    if takes == "uint8":
        return as_pixels(array, "the inputs")
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def _check_floats(array: npt.NDArray[np.float32], takes: str) -> npt.NDArray[np.float32]:
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise DataError(f"input {row} holds a value that is not finite")
    # Sharpening or resizing may leave values a little above 1; a range up to 255 is another scale.
    if takes == "uint8" and array.max() > 2:
        raise DataError(
            f"the inputs are floats up to {array.max():g}, and the model takes pixels: uint8 from "
            "0 to 255, or floats from 0 to 1"
        )
    return array


def load_model(
    source: str | Path,
    *,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    best: bool = False,
    client: int | None = None,
    allow_code: bool = False,
) -> InferenceModel:
    """Load a trained model, ready to predict.

    Args:
        source: A run folder, or a model file (`final.safetensors` or `best.safetensors` of one).
        model: The network, which is copied, or a function that returns it; needed if it was made
            in Python.
        best: Take the best round of a run folder instead of the final one.
        client: Take the final model that this client of a simulation has of its own, under methods
            such as Ditto and FedPer.
        allow_code: Whether a network named "module:function" may be imported. The name comes from
            the file, so this runs code that the file chooses.

    Returns:
        A module that takes raw pixels or features and returns probabilities, in evaluation mode.

    Raises:
        RunError: The run is unfinished, or the file is damaged or does not fit its network; clients
            have models of their own and none is chosen, or the client has none.
        RecipeError: The network is unknown or may not be imported.
    """
    path = _model_file(Path(source), best)
    checkpoint, info = load_checkpoint(path), read_info(path)
    if client is not None:
        if best or not Path(source).is_dir():
            raise RunError("client=… chooses a final model, of a run folder")
        info = _info_of_client(Path(source), info, client)
        checkpoint = _of_client(Path(source), checkpoint, client)
    elif info.unshared:
        raise RunError(own_model_message(info, path))
    network = _build(info, model, allow_code)
    materialize(network, zero_batch(np.empty((0, *info.input_shape), info.input_dtype)))
    _check_state(snapshot(network), checkpoint.state, path)
    restore(network, checkpoint.state)
    return InferenceModel(network, info).eval()


def _info_of_client(folder: Path, info: ModelInfo, client: int) -> ModelInfo:
    """Return the description of a client's own model, whose network may be another than others'."""
    model = read_run_recipe(RunFolder(folder)).model
    if model.by_client:
        own = model.of_client(client)
        info = replace(info, network=own.name, options=own.options)
    return replace(info, unshared="")


def own_model_message(info: ModelInfo, path: Path | None) -> str:
    """Say that the model of a run is not complete, and where complete ones are."""
    where = "the run" if path is None else str(path)
    return (
        f"{where} has no model for all: under {info.method} every client has {info.unshared} for "
        "itself. fedbb.load_model(folder, client=0) and --client 0 take the model of a client of a "
        "simulation that was kept in a folder"
    )


def _of_client(folder: Path, final: Checkpoint, client: int) -> Checkpoint:
    """Return the model that a client of a simulation has of its own after the last round."""
    run = RunFolder(folder)
    recipe = read_run_recipe(run)
    if recipe.privacy != "none":
        raise RunError(f"{folder} is private: the models of its clients are not the server's")
    known = not isinstance(recipe, PythonRecipe) or not recipe.method.options
    if known or recipe.rounds.topology is not None:
        # Clients that average with neighbours have their models in the checkpoint in any method.
        method = method_of(recipe) if known else with_topology(fedavg(), recipe.rounds.topology)
        steps, last = ServerSteps(method.server), run.latest()
        clients = len(read_federation(run).clients)
        if last is not None and not all(s.shares_model for s in steps.steps) and client < clients:
            return replace(final, state=steps.start(last.server, client, final.state))
    if client in final.state_rounds:
        kept = run.client_states.load(client, final.state_rounds[client]).tensors
        own = select(kept, PERSONAL)
        if own and recipe.model.by_client:
            # No model is shared, and which entries are buffers is known to the network alone.
            return replace(final, state=ModelState(own, {}))
        if own:
            return replace(final, state=replace_entries(final.state, own))
    raise RunError(
        f"{folder} has no model of client {client}: the method leaves none with its clients, the "
        "client never took part, or it is the client of a run on Flower, which keeps it itself"
    )


def read_info(path: Path) -> ModelInfo:
    """Return the description that a model file carries.

    Raises:
        RunError: It carries none, or a damaged one.
    """
    held = read_model_metadata(path)
    if held is None:
        raise RunError(
            f"{path} does not describe its network: it was written by a fedbb before 0.2.0, is a "
            "checkpoint, or is of a run on Flower whose sites do not tell how they normalize "
            "inputs; in Python, fedbb.read_run(FOLDER).model loads the network of a run folder"
        )
    try:
        return ModelInfo.from_json(parse_json(held), str(path))
    except ValueError as error:
        raise RunError(f"{path}: the description of the model is no JSON: {error}") from error


def _model_file(path: Path, best: bool) -> Path:
    if not path.exists():
        raise RunError(f"{path} does not exist; give a run folder or a model file (.safetensors)")
    if not path.is_dir():
        if best:
            raise RunError(f"best=True chooses a file of a run folder, and {path} is not a folder")
        return path
    RunFolder(path).check_run()
    file = path / ("best.safetensors" if best else "final.safetensors")
    if best and not file.exists() and (path / "final.safetensors").exists():
        info = read_info(path / "final.safetensors")
        if info.unshared:
            raise RunError(own_model_message(info, path))
    if not file.exists():
        raise RunError(
            f"{path} has no {file.name}: the run is unfinished; "
            f"continue with: fedbb run --resume {path}"
        )
    return file


def _build(
    info: ModelInfo, model: nn.Module | Callable[[], nn.Module] | None, allow_code: bool
) -> nn.Module:
    if model is not None:
        return deepcopy(model) if isinstance(model, nn.Module) else model()
    if info.recipe.get("python") and info.network not in MODELS and not allow_code:
        # A class of a script, or one inside a function, cannot be imported elsewhere.
        inner = info.network.startswith("__main__:") or "<" in info.network
        more = "" if inner else ", or let it be imported by allow_code=True (--allow-code)"
        raise RunError(
            f"the network was made in Python by {info.network}; give it in Python: "
            f"fedbb.load_model(path, model=…){more}"
        )
    return build_model(
        info.network,
        len(info.classes),
        info.input_shape,
        projection=info.projection and info.network in MODELS,
        options=info.options,
        allow_code=allow_code,
    )


def _check_state(own: ModelState, found: ModelState, path: Path) -> None:
    one, two = ({**state.params, **state.buffers} for state in (own, found))
    name = find_difference(one, two)
    if name is None:
        return
    shapes = [entries.get(name) for entries in (one, two)]
    own_shape, found_shape = (
        "nothing" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        for tensor in shapes
    )
    raise RunError(
        f"{path} does not fit its network: {name!r} is {found_shape} in the file, and the network "
        f"has {own_shape}"
    )


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(str(size) for size in shape) or "()"
