"""CLIP2FL: the published divergence, its laws, and CReFF where both of its terms are 0."""

import pytest
import torch
from torch import nn

import fedbb
from fedbb.penalties.distillation import distill
from fedbb.runs.checkpoint import load_checkpoint
from helpers.toy import toy_dataset

STUDENT, TEACHER = torch.tensor([[2.0, 0, -1]]), torch.tensor([[25.0, 22, 20]])
SERVER = {"features": 4, "steps": 3, "epochs": 2}
TEXT = ((1.0, 0.0, 0.5), (0.0, 1.0, 0.0), (0.2, 0.0, 1.0))


def test_the_divergence_has_the_published_value():
    found = distill(STUDENT.double(), TEACHER.double(), 3.0)
    assert found.item() == pytest.approx(0.267324822, abs=1e-8)


def test_it_is_never_below_zero_and_zero_for_the_teachers_own_logits():
    assert distill(STUDENT, STUDENT, 3.0).item() == pytest.approx(0, abs=1e-6)
    assert distill(STUDENT, TEACHER, 3.0).item() > 0
    torch.testing.assert_close(distill(STUDENT, TEACHER + 7, 3.0), distill(STUDENT, TEACHER, 3.0))


def network():
    size = toy_dataset().train.inputs[0].size
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 6), nn.ReLU(), nn.Linear(6, 3))


def simulate(method, **settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    return fedbb.simulate(
        data, clients, model=network, method=method, local=local, rounds=2, **settings
    )


def test_without_teacher_and_contrast_it_is_creff_to_the_bit():
    def never(images):
        raise AssertionError("a teacher of no strength is not asked")

    plain = fedbb.methods.clip2fl(never, alpha=0.0, contrast=0.0, **SERVER)
    assert simulate(plain).sha256 == simulate(fedbb.methods.creff(**SERVER)).sha256


def test_a_trained_teacher_and_prototypes_change_the_result_alike_on_any_engine(tmp_path):
    teacher = simulate("fedavg").model
    method = fedbb.methods.clip2fl(teacher, prototypes=TEXT, **SERVER)
    whole = simulate(method, out=tmp_path / "run")
    assert whole.sha256 != simulate(fedbb.methods.creff(**SERVER)).sha256
    assert simulate(method, workers=2).sha256 == whole.sha256
    state = load_checkpoint(tmp_path / "run" / "checkpoints" / "round-000002.safetensors")
    assert "creff.features" in state.server
    with pytest.raises(ValueError, match="needs a prototype of each class"):
        fedbb.methods.clip2fl(teacher)
