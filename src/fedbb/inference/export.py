"""Export of a trained model to other formats, each checked by running what was written."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedbb._util.files import writing
from fedbb.errors import DataError, RunError
from fedbb.inference.model import InferenceModel

Format = Literal["onnx", "pt2", "state-dict"]

SUFFIXES: Mapping[str, str] = {"onnx": ".onnx", "pt2": ".pt2", "state-dict": ".pt"}
TOLERANCE = 1e-5
"""Largest difference of a probability between the exported model and the original."""

ONNX_NEEDS = ("onnx", "onnxscript", "onnxruntime")
SAMPLES = 7
"""Size of the batch that an export is checked on; exports are traced with another one."""


def export_model(
    model: InferenceModel,
    path: Path,
    to: Format,
    *,
    samples: npt.NDArray[Any] | None = None,
) -> float:
    """Write a model in another format and check that it gives the same probabilities.

    "onnx" and "pt2" hold the whole model: raw inputs in, probabilities out, for batches of any
    size. "state-dict" holds the weights of the network by the names of PyTorch.

    Args:
        model: The model.
        path: The file to write; nothing is left there if the check fails.
        to: The format.
        samples: Raw inputs that the check uses; random ones if None.

    Returns:
        The largest difference of a probability between the exported model and the original.

    Raises:
        RunError: A package is missing, the network cannot be exported, or the check fails.
        DataError: The samples do not fit the model.
    """
    if to == "onnx":
        _check_packages()
    model.eval()
    inputs = example_inputs(model, SAMPLES) if samples is None else torch.from_numpy(samples)
    if tuple(inputs.shape[1:]) != model.info.input_shape:
        raise DataError(f"samples have shape {tuple(inputs.shape)}, which the model does not take")
    with writing(path), tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder) / path.name
        try:
            WRITERS[to](model, written)
        except (RuntimeError, torch.onnx.errors.OnnxExporterError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RunError(f"the network cannot be exported to {to}: {reason}") from error
        difference = _difference(model, READERS[to](model, written), inputs)
        if not difference <= TOLERANCE:
            raise RunError(
                f"the model exported to {to} differs from the original by {difference:.3g}; "
                f"allowed: {TOLERANCE:g}; nothing was written"
            )
        written.replace(path)
    return difference


def example_inputs(model: InferenceModel, number: int) -> Tensor:
    """Return a batch of random inputs of the type and shape that a model takes."""
    generator = torch.Generator().manual_seed(0)
    shape, dtype = (number, *model.info.input_shape), getattr(torch, model.info.input_dtype)
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        # Token ids: the only ones that every vocabulary has.
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=dtype)


def _difference(
    model: InferenceModel, exported: Callable[[Tensor], npt.NDArray[Any]], inputs: Tensor
) -> float:
    with torch.inference_mode():
        original = model(inputs).numpy()
    return float(np.abs(original - exported(inputs)).max())


def _write_state_dict(model: InferenceModel, path: Path) -> None:
    # Through memory: torch's own writer calls a full disk an unexpected position.
    content = BytesIO()
    torch.save(model.network.state_dict(), content)
    path.write_bytes(content.getbuffer())


def _read_state_dict(model: InferenceModel, path: Path) -> Callable[[Tensor], npt.NDArray[Any]]:
    model.network.load_state_dict(torch.load(path, weights_only=True))
    return lambda inputs: np.asarray(model(inputs).detach().numpy())


def _write_pt2(model: InferenceModel, path: Path) -> None:
    content = BytesIO()
    torch.export.save(_exported(model), content)
    path.write_bytes(content.getbuffer())


def _exported(model: InferenceModel) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    inputs = example_inputs(model, 2)
    return torch.export.export(model, (inputs,), dynamic_shapes=({0: batch},))


def _read_pt2(model: InferenceModel, path: Path) -> Callable[[Tensor], npt.NDArray[Any]]:
    program = torch.export.load(path).module()
    return lambda inputs: np.asarray(program(inputs).detach().numpy())


def _write_onnx(model: InferenceModel, path: Path) -> None:
    with _quiet_exporter():
        program = torch.onnx.export(
            _exported(model), input_names=["inputs"], output_names=["probabilities"], verbose=False
        )
    assert program is not None
    program.save(str(path))


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence what torch's exporter says of its own calls and of packages that it can do without.

    What the user needs to know is in the exception, or in the comparison afterwards.
    """
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _read_onnx(model: InferenceModel, path: Path) -> Callable[[Tensor], npt.NDArray[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: np.asarray(session.run(None, {name: inputs.numpy()})[0])


def _check_packages() -> None:
    missing = [name for name in ONNX_NEEDS if find_spec(name) is None]
    if missing:
        raise RunError(
            f"an export to onnx needs {', '.join(missing)}, which is not installed; "
            'pip install "fedbb[onnx]"'
        )


WRITERS: Mapping[str, Callable[[InferenceModel, Path], None]] = {
    "onnx": _write_onnx,
    "pt2": _write_pt2,
    "state-dict": _write_state_dict,
}
READERS: Mapping[str, Callable[[InferenceModel, Path], Callable[[Tensor], npt.NDArray[Any]]]] = {
    "onnx": _read_onnx,
    "pt2": _read_pt2,
    "state-dict": _read_state_dict,
}
