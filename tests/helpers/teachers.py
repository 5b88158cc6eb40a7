"""Logits of a teacher for methods that learn from one: in memory, and as the file of a recipe."""

from dataclasses import replace

import numpy as np

from fedbb.data import save_teacher
from fedbb.data.registry import load_dataset
from fedbb.methods import build_method


def random_logits(dataset, seed=0):
    shape = (len(dataset.train), len(dataset.classes))
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 4


def taught(dataset, method):
    """Return the data set with a teacher's logits, if the method learns from some."""
    if method.needs.teacher is None:
        return dataset
    return replace(dataset, train=replace(dataset.train, teacher=random_logits(dataset)))


def teacher_options(name, npz):
    """Return the options with which a method runs on an .npz: a file beside it, if it needs one."""
    if build_method(name, {}).needs.teacher is None:
        return {}
    data, file = load_dataset("npz", path=npz), npz.with_name("teacher.npz")
    save_teacher(file, data, random_logits(data), np.eye(len(data.classes)))
    options = {"teacher": str(file), "prototypes": str(file)}
    return {"clip2fl": options} if "+" in name else options
