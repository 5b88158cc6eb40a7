"""The exceptions a user of fedbb may meet; the command line turns each into one message."""


class FedbbError(Exception):
    """Something the user can put right; the message says what, what is allowed, and where."""


class RecipeError(FedbbError):
    """A recipe, or a value set on the command line, that cannot be used."""


class DataError(FedbbError):
    """A data set, file or partition that is missing, damaged or does not fit."""


class RunError(FedbbError):
    """A run folder that cannot be written, continued or read."""


class DivergedError(FedbbError):
    """Training met a number that is not finite."""
