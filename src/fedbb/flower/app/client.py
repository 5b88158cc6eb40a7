"""The client app that Flower runs at a site: report, train, score, take part in secure sums."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedbb.errors import DataError, FedbbError, RunError
from fedbb.flower import internals
from fedbb.flower.app.serde import (
    pack_cases,
    pack_client_info,
    pack_scores,
    pack_update,
    unpack_own_part,
    unpack_shift,
    unpack_state,
    unpack_train_request,
)
from fedbb.flower.app.settings import SiteSettings, read_recipe_text, read_site_settings
from fedbb.flower.app.site import Site, open_client_state, open_site
from fedbb.recipes.spec import Recipe
from fedbb.records import ModelState
from fedbb.training.threads import keep_freed_memory, threads

log = logging.getLogger("fedbb")

app = ClientApp()


@app.query("info")
def info(message: Message, context: Context) -> Message:
    """Report this site's client info: its number, its size and how uneven its labels are."""

    def report(site: Site) -> RecordDict:
        return pack_client_info(site.info(), site.outline(), site.measured())

    return _reply(message, context, report)


@app.query("number")
def number(message: Message, context: Context) -> Message:
    """Report which client of a private run this site is, and nothing else."""

    def report(recipe: Recipe, settings: SiteSettings) -> RecordDict:
        # Private runs need an extra, and its libraries take time to load.
        from fedbb.secagg.flower.site import report_number

        return report_number(recipe, settings)

    return _reply(message, context, None, report)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the state in the message."""

    def work(site: Site) -> RecordDict:
        request = unpack_train_request(message.content)
        folder = read_site_settings(context.node_config).state
        done = site.train(request, open_client_state(folder, request.run, context.state))
        return pack_update(done.update, request, kept=done.kept, lost=done.lost)

    return _reply(message, context, work)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the state in the message on this site's own test data."""

    def work(site: Site) -> RecordDict:
        return pack_scores(site.score(_model(site, message, context)))

    return _reply(message, context, work)


@app.evaluate("own")
def evaluate_own(message: Message, context: Context) -> Message:
    """Score the state in the message on what this site keeps of its own data for tests."""

    def work(site: Site) -> RecordDict:
        shift = unpack_shift(message.content, len(site.dataset.classes))
        return pack_scores(site.score_own(_model(site, message, context), shift))

    return _reply(message, context, work)


@app.evaluate("cases")
def evaluate_cases(message: Message, context: Context) -> Message:
    """Count this site's validation cases by the outputs of the state in the message."""

    def work(site: Site) -> RecordDict:
        return pack_cases(site.count_cases(unpack_state(message.content)))

    return _reply(message, context, work)


def _model(site: Site, message: Message, context: Context) -> ModelState:
    """Return the model to score: as it came, or with what this site's client keeps."""
    state, own = unpack_state(message.content), unpack_own_part(message.content)
    if own is None:
        return state
    folder = read_site_settings(context.node_config).state
    return site.own_model(state, own.since, open_client_state(folder, own.run, context.state))


@app.query("secure")
@app.train("secure")
def secure(message: Message, context: Context) -> Message:
    """Take part in a secure sum: reply to one of its signed messages."""

    def work(recipe: Recipe, settings: SiteSettings) -> RecordDict:
        from fedbb.secagg.flower.site import answer_message

        return answer_message(recipe, settings, message.content)

    return _reply(message, context, None, work)


def _reply(
    message: Message,
    context: Context,
    work: Callable[[Site], RecordDict] | None,
    in_private: Callable[[Recipe, SiteSettings], RecordDict] | None = None,
) -> Message:
    """Return the site's reply to a message in a plain or a private run, or the error as a reply."""
    keep_freed_memory()
    try:
        recipe = read_recipe_text(str(context.run_config.get("recipe", "")))
        settings = read_site_settings(context.node_config)
        if recipe.privacy == "none":
            settings.check_open_run()
        with threads(recipe.local.threads):
            if recipe.privacy != "none" and in_private is not None:
                return Message(in_private(recipe, settings), reply_to=message)
            if recipe.privacy == "none" and work is not None:
                site = open_site(recipe, settings, str(context.run_id))
                return Message(work(site), reply_to=message)
        raise RunError(f'this is not asked for in a run with privacy = "{recipe.privacy}"')
    except Exception as error:
        log.exception("this site could not reply")
        reason = Error(internals.ErrorCode.CLIENT_APP_RAISED_EXCEPTION, _describe(error))
        return Message(reason, reply_to=message)


def _describe(error: Exception) -> str:
    """Return what the server may know of an error: never anything that was read from data."""
    if isinstance(error, DataError):
        return "DataError: its data cannot be used; the reason is in the site's own log"
    if isinstance(error, FedbbError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}; details are in the site's own log"
