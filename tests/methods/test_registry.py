"""Algorithms as four slots: what is in them, and how they are built from flat options."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.merging import BySamples, ClientBalanced, average, normalized_average
from fedbb.aggregation.robust import Uniform
from fedbb.aggregation.server_optimizers import AdaptiveOptimizer, ServerMomentum
from fedbb.classifiers.retraining import Retraining
from fedbb.compression import Sparse
from fedbb.distillation import Distillation as Public
from fedbb.errors import RecipeError
from fedbb.imbalance import count_labels
from fedbb.losses.class_balanced import ClassBalanced
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.evidential import Evidential
from fedbb.losses.focal import Focal
from fedbb.losses.importance import ImportanceWeighted
from fedbb.losses.logit_adjusted import LogitAdjusted
from fedbb.losses.logit_calibrated import Calibrated, Calibration, LogitCalibrated
from fedbb.losses.pnb import PNB
from fedbb.losses.restricted_softmax import RestrictedSoftmax
from fedbb.losses.symmetric import Symmetric
from fedbb.methods import METHODS, Method, build_method, hyper_parameters
from fedbb.methods.ccvr import FeatureMoments, VirtualFeatures
from fedbb.methods.climb import LossBalance, StartLoss
from fedbb.methods.clip2fl import TeacherDistillation
from fedbb.methods.creff import FederatedFeatures, HeadGradients
from fedbb.methods.distillation import Consensus, EnsembleDistillation, PublicTable
from fedbb.methods.feddyn import DynamicRegularizer, DynamicShift
from fedbb.methods.fedfusion import Components
from fedbb.methods.isfl import ClassSampling
from fedbb.methods.pfedla import LayerMixing
from fedbb.methods.rhfl import ClientConfidence, PeerDistillation, PrivateLoss, SingleTable
from fedbb.methods.ripfl import FusedModel, Reliability, ReliableClients, RisingEvidential
from fedbb.methods.scaffold import ControlChange, ControlVariate, ServerControl
from fedbb.penalties.alignment import Alignment
from fedbb.penalties.base import Needs
from fedbb.penalties.embedding import Contrastive, Decorrelation
from fedbb.penalties.personal_head import PersonalHead
from fedbb.penalties.proximal import Proximal
from fedbb.personal import KeptEntries, OwnModel
from fedbb.records import ClientInfo, LabelCounts, Task
from fedbb.sampling import VirtualClients

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 0, 1, 0])
ROWS = F.one_hot(LABELS, 3).float()
LOGITS = torch.linspace(-2, 2, 30).reshape(10, 3)
OF_PNB = {"beta": 0.9999, "tau": 1.0, "mu": 4.0, "class_factor": "alpha", "alpha_min": 0.0}
OF_CBR = {"gamma": 1.0, "reading": "share-std", "floor": 1e-3}
OF_PLUS = {"beta": 0.0, "mu": "unit", "gamma": 0.5, "margin": 10.0, "label_margin": 0.0}
FEDDF = Public("server", steps=500, batch_size=128, lr=1e-3, cosine=True, clip=5.0)
FEDMD = Public("clients", distance="mae", epochs=1, batch_size=256, lr=1e-3)
RHFL = PeerDistillation("clients", "probabilities", "kl", epochs=1, batch_size=256, lr=1e-3)


def client(task: Task) -> tuple[LabelCounts, torch.Tensor]:
    targets = LABELS if task is Task.MULTICLASS else ROWS
    return count_labels(targets.numpy(), task, 3), targets


SLOTS = {
    "fedavg": Method("FedAvg", CrossEntropy(), (), BySamples(), average),
    "fedprox": Method("FedProx", penalties=(Proximal(0.001),)),
    "moon": Method("MOON", penalties=(Contrastive(1.0, 0.5),)),
    "fednova": Method("FedNova", merge=normalized_average),
    "fedalign": Method("FedAlign", penalties=(Alignment(0.45, 0.25, 10.0),)),
    "fedavgm": Method("FedAvgM", server=(ServerMomentum(1.0, 0.9),)),
    "fedadam": Method("FedAdam", server=(AdaptiveOptimizer("adam", 0.1, 0.9, 0.99, 1e-3),)),
    "fedyogi": Method("FedYogi", server=(AdaptiveOptimizer("yogi"),)),
    "fedadagrad": Method("FedAdagrad", server=(AdaptiveOptimizer("adagrad"),)),
    "scaffold": Method(
        "SCAFFOLD",
        penalties=(ControlVariate(),),
        weighting=Uniform(),
        statistics=(ControlChange(),),
        server=(ServerControl(1.0),),
    ),
    "feddyn": Method(
        "FedDyn",
        penalties=(DynamicRegularizer(0.01, 10.0),),
        weighting=Uniform(),
        server=(DynamicShift(0.01),),
    ),
    "fedlc": Method("FedLC", LogitCalibrated(1.0, "stable")),
    "focal": Method("Focal", Focal(2.0)),
    "cb": Method("CB", ClassBalanced(0.9999, "softmax")),
    "fedavg-scaled": Method("FedAvg-scaled", ScaledCrossEntropy(PNB())),
    "pnb": Method("PNB", PNB()),
    "cbr": Method("CBR", weighting=ClientBalanced()),
    "fedbb": Method("FedBB", PNB(), (), ClientBalanced()),
    "fedbb-printed": Method("FedBB-printed", PNB(), (), ClientBalanced(reading="printed")),
    "fedbb-plus": Method(
        "FedBB-plus",
        Calibrated(PNB(beta=0.0, mu="unit"), Calibration(10.0)),
        weighting=ClientBalanced(gamma=0.5),
    ),
    "bsm": Method("BSM", LogitAdjusted(1.0)),
    "fedrs": Method("FedRS", RestrictedSoftmax(0.5, "absent")),
    "fedir": Method("FedIR", ImportanceWeighted(), server=(FederationCounts(),)),
    "fedvc": Method("FedVC", weighting=Uniform(), sampling=VirtualClients(256)),
    "feddecorr": Method("FedDecorr", penalties=(Decorrelation(0.1),)),
    "fed-rod": Method("Fed-ROD", LogitAdjusted(1.0), (PersonalHead("zeros"),)),
    "climb": Method("CLIMB", statistics=(StartLoss(1),), server=(LossBalance(2.0, 0.01, 5.0),)),
    "creff": Method(
        "CReFF",
        statistics=(HeadGradients(),),
        server=(FederatedFeatures(100, 100, 0.1, Retraining(300, 32, 0.01)),),
    ),
    "ccvr": Method(
        "CCVR",
        statistics=(FeatureMoments(),),
        server=(VirtualFeatures(200, Retraining(1, 64, 0.01)),),
    ),
    "symmetric": Method("Symmetric", Symmetric(0.1, 1.0)),
    "evidential": Method("Evidential", Evidential(1.0)),
    "local": Method("Local", personal=KeptEntries("all")),
    "fedper": Method("FedPer", personal=KeptEntries("head")),
    "fedrep": Method("FedRep", personal=KeptEntries("head", 1)),
    "fedbn": Method("FedBN", personal=KeptEntries("batch-norms")),
    "ditto": Method("Ditto", personal=OwnModel(1.0, None, "plain")),
    "isfl": Method(
        "ISFL", weighting=Uniform(), sampling=ClassSampling(1.0, 0.02, 1.0, "even", 100, "all")
    ),
    "pfedla": Method("pFedLA", server=(LayerMixing(5e-3, 100, "module", 0),)),
    "ripfl": Method(
        "RIPFL (reconstruction)",
        RisingEvidential(1.0),
        personal=FusedModel(0.0, None, "method"),
        statistics=(Reliability(),),
        server=(ReliableClients(0.05),),
    ),
    "feddf": Method(
        "FedDF",
        distillation=FEDDF,
        statistics=(PublicTable(FEDDF),),
        server=(EnsembleDistillation(),),
    ),
    "fedmd": Method(
        "FedMD",
        personal=KeptEntries("all"),
        distillation=FEDMD,
        statistics=(PublicTable(FEDMD, 0),),
        server=(Consensus(),),
    ),
    "rhfl": Method(
        "RHFL",
        Symmetric(0.1, 1.0),
        personal=KeptEntries("all"),
        distillation=RHFL,
        statistics=(SingleTable(RHFL, 0), PrivateLoss(Symmetric(0.1, 1.0), 0)),
        server=(ClientConfidence(0.5),),
    ),
    "fedfusion": Method(
        "FedFusion (reconstruction)",
        weighting=Uniform(),
        server=(Components(15, 30, 0.0, "alike"),),
    ),
    "fedopt-sca": Method(
        "FedOpt-SCA", compression=Sparse(0.1, "binary", "largest", "tensor", True)
    ),
    "clip2fl": Method(
        "CLIP2FL",
        penalties=(TeacherDistillation("", 1.0, 3.0),),
        statistics=(HeadGradients(),),
        server=(FederatedFeatures(100, 100, 0.1, Retraining(300, 32, 0.01)),),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_slots_of_a_method(name):
    assert build_method(name, {}) == SLOTS[name]


def test_harmonizing_keeps_the_base_and_takes_loss_and_weighting_from_the_other():
    options = {"moon": {"mu": 5.0}, "fedbb": {"beta": 0.99, "gamma": 0.5}}
    assert build_method("moon+fedbb", options) == Method(
        "MOON+FedBB", PNB(beta=0.99), (Contrastive(mu=5.0),), ClientBalanced(gamma=0.5), average
    )
    assert build_method("fednova+cbr", {}).merge is normalized_average


def test_a_method_asks_for_what_its_penalties_ask_for():
    contrast = Needs(models=2, forwards=2, projection=True, embedding=True, client_state=True)
    assert build_method("moon+fedbb", {}).needs == contrast
    assert build_method("fedalign", {}).needs == Needs(tail_width=0.25, clip=10.0)
    assert build_method("fedbb", {}).needs == Needs()


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("fedavg", {}),
        ("fedprox", {"mu": 0.001}),
        ("moon", {"mu": 1.0, "temperature": 0.5}),
        ("fednova", {}),
        ("fedalign", {"mu": 0.45, "width": 0.25, "clip": 10.0}),
        ("fedavgm", {"lr": 1.0, "momentum": 0.9}),
        ("fedadam", {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("fedyogi", {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("fedadagrad", {"lr": 0.1, "beta1": 0.9, "tau": 1e-3}),
        ("scaffold", {"lr": 1.0}),
        ("feddyn", {"alpha": 0.01, "clip": 10.0}),
        ("fedlc", {"tau": 1.0, "denominator": "stable"}),
        ("focal", {"gamma": 2.0, "alpha": None}),
        ("cb", {"beta": 0.9999, "form": "softmax", "gamma": 1.0}),
        ("fedavg-scaled", OF_PNB),
        ("pnb", OF_PNB),
        ("cbr", OF_CBR),
        ("fedbb", OF_PNB | OF_CBR),
        ("fedbb-printed", OF_PNB | {"gamma": 1.0}),
        ("fedbb-plus", OF_PNB | OF_CBR | OF_PLUS),
        ("bsm", {"tau": 1.0}),
        ("fedrs", {"alpha": 0.5, "scaling": "absent"}),
        ("fedir", {"normalize": "batch", "most": float("inf")}),
        ("fedvc", {"size": 256}),
        ("feddecorr", {"beta": 0.1}),
        ("fed-rod", {"tau": 1.0, "start": "zeros"}),
        ("climb", {"lr": 2.0, "tolerance": 0.01, "most": 5.0, "every": 1}),
    ],
)
def test_hyper_parameters_are_those_of_the_slots_with_the_papers_values(name, defaults):
    assert hyper_parameters(name) == defaults


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_own_defaults_change_nothing(name):
    assert build_method(name, hyper_parameters(name)) == build_method(name, {})


def test_options_reach_the_slot_they_belong_to():
    method = build_method("fedbb", {"beta": 0.99, "mu": "unit", "gamma": 0.5, "floor": 0.01})
    assert method.loss == PNB(beta=0.99, mu="unit")
    assert method.weighting == ClientBalanced(gamma=0.5, floor=0.01)
    assert build_method("fedavg-scaled", {"mu": 5.0}).loss == ScaledCrossEntropy(PNB(mu=5.0))
    plus = build_method("fedbb-plus", {"margin": 2.0, "beta": 0.9, "gamma": 0.0})
    assert plus.loss == Calibrated(PNB(beta=0.9, mu="unit"), Calibration(2.0))
    printed = build_method("fedbb-printed", {"gamma": 0.25, "tau": 10.0})
    assert printed.weighting == ClientBalanced(0.25, reading="printed")
    assert printed.loss == PNB(tau=10.0)


def test_methods_are_values_that_can_be_compared_and_hashed():
    assert build_method("fedbb", {"mu": 5}) == build_method("fedbb", {"mu": 5.0})
    assert len({build_method(name, {}) for name in METHODS}) == len(METHODS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedbbb", {}, r"method.name 'fedbbb' is unknown; did you mean fedbb\? Known: fedavg, "),
        ("zzz", {}, "method.name 'zzz' is unknown; known: fedavg, "),
        ("fedbb", {"bta": 1}, r"method.options.bta is unknown to fedbb; did you mean beta\?"),
        ("fedavg", {"mu": 4.0}, "method.options.mu is unknown to fedavg; it takes none"),
        ("fedbb-printed", {"reading": "share-std"}, "reading is unknown to fedbb-printed"),
        ("fedbb", {"beta": 1.0}, r"method.options of fedbb: beta must be in \[0, 1\), not 1.0"),
        ("pnb", {"tau": 0}, "method.options of pnb: tau must be a finite number above 0"),
        ("pnb", {"mu": 0}, 'mu must be a finite number above 0 or "unit", not 0'),
        ("cbr", {"gamma": 1.1}, r"method.options of cbr: gamma must be in \[0, 1\], not 1.1"),
        ("cbr", {"gamma": -0.1}, "gamma must be in"),
        ("cbr", {"reading": "std"}, "reading must be one of share-std"),
        ("fedbb", {"beta": "high"}, "fedbb has a value of the wrong type in {'beta': 'high'}"),
        ("cbr", {"gamma": [1]}, "cbr has a value of the wrong type"),
        ("cbr", {"reading": ["printed"]}, "reading must be one of"),
    ],
)
def test_a_bad_name_or_option_is_refused_with_what_is_allowed(name, options, message):
    with pytest.raises(RecipeError, match=message):
        build_method(name, options)


@pytest.mark.parametrize("task", list(Task))
def test_fedbb_with_gamma_zero_and_unit_weights_is_fedavg(task):
    fedbb = build_method("fedbb", {"gamma": 0.0, "beta": 0.0, "mu": "unit"})
    fedavg = build_method("fedavg", {})
    counts, targets = client(task)
    losses = [method.loss.bind(counts, task)(LOGITS, targets) for method in (fedbb, fedavg)]
    torch.testing.assert_close(*losses)
    assert fedbb.loss.mean_weight(counts, task) == fedavg.loss.mean_weight(counts, task) == 1.0
    weights = [
        method.weighting([ClientInfo(k, n, 0.1 * k) for k, n in enumerate((7, 30, 63))]).tolist()
        for method in (fedbb, fedavg)
    ]
    assert weights[0] == weights[1] == [0.07, 0.3, 0.63]


@pytest.mark.parametrize("task", list(Task))
def test_fedavg_scaled_is_the_plain_loss_times_the_mean_weight_of_pnb(task):
    counts, targets = client(task)
    scaled, plain, pnb = (build_method(name, {}) for name in ("fedavg-scaled", "fedavg", "pnb"))
    factor = pnb.loss.mean_weight(counts, task)
    assert scaled.loss.mean_weight(counts, task) == factor
    value = scaled.loss.bind(counts, task)(LOGITS, targets)
    torch.testing.assert_close(value, factor * plain.loss.bind(counts, task)(LOGITS, targets))


def test_fedbb_printed_weighs_clients_alike_and_fedbb_does_not():
    clients = [LabelCounts(np.array(row), 40 - np.array(row), 40) for row in ([20, 20], [39, 1])]
    for name, alike in (("fedbb-printed", True), ("fedbb", False)):
        weighting = build_method(name, {}).weighting
        infos = [ClientInfo(k, 40, weighting.measure(counts)) for k, counts in enumerate(clients)]
        assert (weighting(infos).tolist() == [0.5, 0.5]) == alike


def test_fedbb_is_pnb_and_cbr_together():
    fedbb, pnb, cbr = (build_method(name, {}) for name in ("fedbb", "pnb", "cbr"))
    assert (fedbb.loss, fedbb.weighting) == (pnb.loss, cbr.weighting)
