"""What a recipe needs, beside a method's name, to run that method."""

from fedbb.errors import RecipeError
from fedbb.methods import build_method

NORMED = ("fedbn", "fedfusion")
"""Methods that are about batch normalization, of which their network needs some."""


def can_be_built(name):
    """Tell whether two methods suit each other."""
    try:
        build_method(name, {})
    except RecipeError:
        return False
    return True


def needs_public(name):
    return build_method(name, {}).distillation is not None


def network_of(name):
    """Return the section `model` of a recipe with this method."""
    return {"name": "resnet11" if name.partition("+")[0] in NORMED else "small-cnn"}


def public_data(name, npz=None):
    """Return the keys that a method adds to the section `data`: public inputs, if it needs some.

    They are those of another file, or taken out of the training data.
    """
    other = {} if npz is None else {"name": "npz", "path": str(npz)}
    return {"public": {"images": 8, **other}} if needs_public(name) else {}


def is_central(name):
    """Tell whether a method can train in one place: nothing stays with clients, nothing is sent."""
    method = build_method(name, {})
    kept = method.personal is not None or method.distillation is not None
    return not kept and method.compression is None and method.shares_model
