"""What Flower runs at a site: tell the card, train, score."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from fedbb.engine.flower.packing import (
    pack_card,
    pack_scores,
    pack_update,
    unpack_order,
    unpack_state,
)
from fedbb.engine.flower.remembering import open_memory
from fedbb.engine.flower.settings import read_recipe_text, read_site_settings
from fedbb.engine.flower.site import Site, open_site
from fedbb.engine.malloc import keep_freed_memory
from fedbb.errors import DataError, FedbbError
from fedbb.training.threads import threads

log = logging.getLogger("fedbb")

app = ClientApp()


@app.query("card")
def card(message: Message, context: Context) -> Message:
    """Introduce this site."""

    def introduce(site: Site) -> RecordDict:
        return pack_card(site.card(), site.outline())

    return _answer(message, context, introduce)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the state in the message."""

    def work(site: Site) -> RecordDict:
        order = unpack_order(message.content)
        folder = read_site_settings(context.node_config).state
        done = site.train(order, open_memory(folder, order.run, context.state))
        return pack_update(done.update, order, kept=done.kept, forgot=done.forgot)

    return _answer(message, context, work)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the state in the message on this site's own test data."""

    def work(site: Site) -> RecordDict:
        return pack_scores(site.score(unpack_state(message.content)))

    return _answer(message, context, work)


def _answer(message: Message, context: Context, work: Callable[[Site], RecordDict]) -> Message:
    """Return what the site makes of a message, or why it could not."""
    keep_freed_memory()
    try:
        recipe = read_recipe_text(str(context.run_config.get("recipe", "")))
        with threads(recipe.local.threads):
            site = open_site(recipe, read_site_settings(context.node_config))
            return Message(work(site), reply_to=message)
    except Exception as error:
        log.exception("this site could not answer")
        reason = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, _tell(error))
        return Message(reason, reply_to=message)


def _tell(error: Exception) -> str:
    """Return what the server may know of an error: never anything that was read from data."""
    if isinstance(error, DataError):
        return "DataError: its data cannot be used; the site's own log tells why"
    if isinstance(error, FedbbError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}; the site's own log tells more"
