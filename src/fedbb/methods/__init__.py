"""Every algorithm as one expression of parts: loss, penalties, weighting, merge and more.

A part is a spec, a frozen dataclass of hyper-parameters. A builder takes them flat, as keyword
arguments; these are the `method.options` of a recipe too. Builders are grouped by family in the
modules of this package; `registry` has their names.
"""

from fedbb.aggregation.merging import BySamples, ClientBalanced, average, normalized_average
from fedbb.aggregation.server_step import ServerStep
from fedbb.compression import Compression, Sparse
from fedbb.distillation import Distillation
from fedbb.methods.balancing import (
    cbr,
    class_balanced,
    fedavg_scaled,
    fedbb,
    fedbb_plus,
    fedbb_printed,
    fedlc,
    focal,
    pnb,
)
from fedbb.methods.bases import fedalign, fedavg, fednova, fedprox, moon
from fedbb.methods.ccvr import ccvr
from fedbb.methods.climb import climb
from fedbb.methods.clip2fl import clip2fl
from fedbb.methods.compression import fedopt_sca
from fedbb.methods.creff import creff
from fedbb.methods.distillation import feddf, fedmd
from fedbb.methods.feddyn import feddyn
from fedbb.methods.fedfusion import fedfusion
from fedbb.methods.heads import HEADS, lda_head, means_head, ridge_head
from fedbb.methods.imbalance import bsm, fed_rod, feddecorr, fedir, fedrs, fedvc
from fedbb.methods.isfl import isfl
from fedbb.methods.noisy_labels import evidential, symmetric
from fedbb.methods.personal import ditto, fedbn, fedper, fedrep, local
from fedbb.methods.pfedla import pfedla
from fedbb.methods.record import Method, harmonize
from fedbb.methods.record import with_robust_merge as with_robust_merge
from fedbb.methods.registry import BALANCING as BALANCING
from fedbb.methods.registry import BASES as BASES
from fedbb.methods.registry import METHODS, build_method, hyper_parameters
from fedbb.methods.rhfl import rhfl
from fedbb.methods.ripfl import ripfl
from fedbb.methods.scaffold import scaffold
from fedbb.methods.server import fedadagrad, fedadam, fedavgm, fedyogi
from fedbb.penalties.alignment import Alignment
from fedbb.penalties.base import BoundPenalty
from fedbb.penalties.embedding import Contrastive
from fedbb.penalties.proximal import Proximal
from fedbb.personal import KeptEntries, OwnModel, Personal
from fedbb.records import ModelState
from fedbb.sampling import Sampling
from fedbb.statistics import Statistic

__all__ = [
    "HEADS",
    "METHODS",
    "Alignment",
    "BoundPenalty",
    "BySamples",
    "ClientBalanced",
    "Compression",
    "Contrastive",
    "Distillation",
    "KeptEntries",
    "Method",
    "ModelState",
    "OwnModel",
    "Personal",
    "Proximal",
    "Sampling",
    "ServerStep",
    "Sparse",
    "Statistic",
    "average",
    "bsm",
    "build_method",
    "cbr",
    "ccvr",
    "class_balanced",
    "climb",
    "clip2fl",
    "creff",
    "ditto",
    "evidential",
    "fed_rod",
    "fedadagrad",
    "fedadam",
    "fedalign",
    "fedavg",
    "fedavg_scaled",
    "fedavgm",
    "fedbb",
    "fedbb_plus",
    "fedbb_printed",
    "fedbn",
    "feddecorr",
    "feddf",
    "feddyn",
    "fedfusion",
    "fedir",
    "fedlc",
    "fedmd",
    "fednova",
    "fedopt_sca",
    "fedper",
    "fedprox",
    "fedrep",
    "fedrs",
    "fedvc",
    "fedyogi",
    "focal",
    "harmonize",
    "hyper_parameters",
    "isfl",
    "lda_head",
    "local",
    "means_head",
    "moon",
    "normalized_average",
    "pfedla",
    "pnb",
    "rhfl",
    "ridge_head",
    "ripfl",
    "scaffold",
    "symmetric",
]
