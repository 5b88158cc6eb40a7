"""What a trained model needs outside its run: network, input, classes, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from fedbb._util.constraints import STRICT_TABLE
from fedbb._util.files import finite_or_none
from fedbb._util.validation import explain_validation_error
from fedbb.data.tabular import TableFormat
from fedbb.errors import RunError
from fedbb.records import Task

MODEL_INFO = "model.json"
"""The file of a run folder that holds the description; best and final model carry it too."""


INPUT_DTYPES = ("uint8", "float32", "int32", "int64")
"""Types of the inputs of a data set."""


@dataclass(frozen=True)
class ModelInfo:
    """The description of a trained model, as `model.json` and the model files hold it.

    Args:
        network: Name of a built-in network, or "module:function" of the user's own.
        options: Options of the network.
        projection: Whether it has MOON's projection head.
        task: "multiclass" or "multilabel".
        classes: Names of the classes, by number.
        input_shape: Shape of one input, without the batch.
        input_dtype: Type of the raw inputs, such as "uint8" or "float32".
        mean: Mean per channel that inputs are centered by; empty for none.
        std: Standard deviation per channel that they are divided by; empty for none.
        thresholds: Probability above which a class is predicted, by class, for multi-label models
            and for two classes; None for one half.
        logit_shift: What is added to the logits, by class (logit adjustment); None for nothing.
        table: How the rows of a raw table become inputs (columns, categories, what replaces a
            missing value); None if the training data was no table of named columns.
        data: Name of the training data.
        method: Name of the method.
        unshared: What every client has for itself, if the file holds only the shared part of the
            model: "the classifier"; empty if the model is complete.
        version: Version of fedbb.
        recipe: The recipe of the run.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    network: str
    task: str
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    input_dtype: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    projection: bool = False
    thresholds: tuple[float, ...] | None = None
    logit_shift: tuple[float, ...] | None = None
    table: TableFormat | None = None
    data: str = ""
    method: str = ""
    unshared: str = ""
    version: str = ""
    recipe: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Task(self.task)
        if self.input_dtype not in INPUT_DTYPES:
            raise ValueError(f"inputs are one of {', '.join(INPUT_DTYPES)}")
        if not self.classes or not all(size > 0 for size in self.input_shape):
            raise ValueError("a model has classes and inputs of at least one number")
        if len(self.mean) != len(self.std) or not all(value > 0 for value in self.std):
            raise ValueError("mean and std have one entry for each channel; std is above 0")
        if self.thresholds is not None and len(self.thresholds) != len(self.classes):
            raise ValueError("there is one threshold for each class")
        if self.logit_shift is not None and len(self.logit_shift) != len(self.classes):
            raise ValueError("there is one shift of logits for each class")
        if self.table is not None and self.input_shape != (len(self.table.encoder.features),):
            raise ValueError("table has one entry for each number of an input")

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries."""
        plain: dict[str, Any] = finite_or_none(self)
        for name in ("logit_shift", "table"):  # older versions know no such entry
            if plain[name] is None:
                del plain[name]
        if not self.unshared:
            del plain["unshared"]
        return plain

    @classmethod
    def from_json(cls, content: Any, where: str) -> Self:
        """Return the record of parsed JSON, whatever it may hold.

        Args:
            content: The parsed JSON.
            where: The file, for messages.

        Raises:
            RunError: An entry is missing, unknown or of another type.
        """
        try:
            # JSON has lists where the record has tuples, so text is read, not Python's values.
            return TypeAdapter(cls).validate_json(json.dumps(content))
        except ValidationError as error:
            reason = explain_validation_error(error, cls)
            raise RunError(f"{where}: the description of the model: {reason}") from error


def as_metadata(info: Mapping[str, Any]) -> str:
    """Return the description as the metadata of a model file holds it."""
    return json.dumps(info, sort_keys=True, ensure_ascii=False)
