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


class QuorumError(RunError):
    """Too few clients gave a usable answer, as often as the round was tried."""


class ReplyError(FedbbError):
    """An answer of a client that cannot be used; the message names client, round and field."""


class PrivacyError(FedbbError):
    """A secure sum that cannot be made, or whose parties or messages are not as they must be."""


class RefusedError(PrivacyError):
    """A message that is not answered: malformed, forged, replayed, or asking for too much."""


class TooFewError(PrivacyError):
    """Too few parties stayed to the end of a secure sum; nothing of anyone's was revealed."""
