"""What Flower runs at a site: tell the card, train, score, answer letters of secure sums."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from fedbb.errors import DataError, FedbbError, RunError
from fedbb.flower.app.client_state import open_store
from fedbb.flower.app.serde import pack_card, pack_scores, pack_update, unpack_order, unpack_state
from fedbb.flower.app.settings import SiteSettings, read_recipe_text, read_site_settings
from fedbb.flower.app.site import Site, open_site
from fedbb.recipes.spec import Recipe
from fedbb.simulation.pool.process_start import keep_freed_memory
from fedbb.training.threads import threads

log = logging.getLogger("fedbb")

app = ClientApp()


@app.query("card")
def info(message: Message, context: Context) -> Message:
    """Introduce this site."""

    def client_infos(site: Site) -> RecordDict:
        return pack_card(site.info(), site.outline())

    return _answer(message, context, client_infos)


@app.query("number")
def number(message: Message, context: Context) -> Message:
    """Tell which client of a private run this site is, and nothing else of it."""

    def client_infos(recipe: Recipe, settings: SiteSettings) -> RecordDict:
        # What private runs need comes with an extra, and takes its time to load.
        from fedbb.secagg.flower.site import client_infos

        return client_infos(recipe, settings)

    return _answer(message, context, None, client_infos)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the state in the message."""

    def work(site: Site) -> RecordDict:
        order = unpack_order(message.content)
        folder = read_site_settings(context.node_config).state
        done = site.train(order, open_store(folder, order.run, context.state))
        return pack_update(done.update, order, kept=done.kept, forgot=done.forgot)

    return _answer(message, context, work)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the state in the message on this site's own test data."""

    def work(site: Site) -> RecordDict:
        return pack_scores(site.score(unpack_state(message.content)))

    return _answer(message, context, work)


@app.query("secure")
@app.train("secure")
def secure(message: Message, context: Context) -> Message:
    """Answer a letter of a secure sum."""

    def answer(recipe: Recipe, settings: SiteSettings) -> RecordDict:
        from fedbb.secagg.flower.site import answer_letter

        return answer_letter(recipe, settings, message.content)

    return _answer(message, context, None, answer)


def _answer(
    message: Message,
    context: Context,
    work: Callable[[Site], RecordDict] | None,
    in_private: Callable[[Recipe, SiteSettings], RecordDict] | None = None,
) -> Message:
    """Return what the site makes of a message, in the open or in private, or why it could not."""
    keep_freed_memory()
    try:
        recipe = read_recipe_text(str(context.run_config.get("recipe", "")))
        settings = read_site_settings(context.node_config)
        if settings.private and recipe.privacy == "none":
            raise RunError("this site takes part in private runs only, as its staff has set")
        with threads(recipe.local.threads):
            if recipe.privacy != "none" and in_private is not None:
                return Message(in_private(recipe, settings), reply_to=message)
            if recipe.privacy == "none" and work is not None:
                return Message(work(open_site(recipe, settings)), reply_to=message)
        raise RunError(f'this is not asked for in a run with privacy = "{recipe.privacy}"')
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
