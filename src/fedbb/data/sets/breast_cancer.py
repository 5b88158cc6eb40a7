"""The Wisconsin diagnostic breast cancer data that ships inside scikit-learn."""

from __future__ import annotations

import numpy as np

from fedbb.data.dataset import Dataset
from fedbb.data.examples import Examples
from fedbb.data.sets.digits import hold_out_each_class
from fedbb.data.source import NoOptions, Source, read_options
from fedbb.data.tabular import ColumnTable, FeatureColumns, TableFormat, fit_encoder
from fedbb.records import Task


def load(source: Source) -> Dataset:
    """Return 30 measurements of 569 tumors, a fifth of each class for testing."""
    read_options(NoOptions, source)
    # scikit-learn takes a second to import, which naming a data set should not cost.
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    tumors = Examples(bunch.data.astype(np.float32), bunch.target.astype(np.int64))
    train, test = hold_out_each_class(tumors, source.name)
    names = tuple(str(name) for name in bunch.feature_names)
    columns = dict(zip(names, np.asarray(train.inputs).T, strict=True))
    rows = ColumnTable(source.name, columns, lambda row: f"{source.name} row {row}")
    return Dataset(
        source.name,
        Task.MULTICLASS,
        tuple(str(name) for name in bunch.target_names),
        train,
        test,
        features=names,
        table=TableFormat(fit_encoder(rows, FeatureColumns(names, (), "refuse", False))),
    ).normalized()
