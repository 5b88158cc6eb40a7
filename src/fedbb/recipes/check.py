"""What the parts of a recipe must agree on: checked before a run folder is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedbb._util.plugins import AllowedCode, check_code
from fedbb.aggregation.server_step import ServerStep
from fedbb.data.dataset import Dataset
from fedbb.data.download import sha256_of
from fedbb.data.registry import CATALOGUE, find_entry
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method, with_robust_merge
from fedbb.methods.topology import make_graph, with_topology
from fedbb.models.registry import MODELS, check_name
from fedbb.partition.registry import KINDS, Rule
from fedbb.recipes.privacy import check_privacy
from fedbb.recipes.reader import refuse_python
from fedbb.recipes.spec import ModelSpec, Recipe
from fedbb.records import Task
from fedbb.rounds.loop import chosen_number
from fedbb.training.config import check_optimizer


def check_recipe(recipe: Recipe, *, allow_code: AllowedCode = False) -> Method:
    """Return the method of a recipe if its parts are known and suit each other.

    Nothing is loaded: what depends on the data is checked by `check_data`.

    Args:
        recipe: A recipe as it was read.
        allow_code: Whether method.loss may be "package.module:function", which is imported then;
            without it such a loss is not looked at, and training by the method is refused.

    Returns:
        The method; under a robust rule that merges models itself, with that merge.

    Raises:
        RecipeError: A name is unknown, or two settings contradict each other.
    """
    refuse_python(recipe)
    method = method_of(recipe, allow_code)
    task = find_entry(recipe.data.name).task
    if task is not None:
        _check_task(method, task)
    _check_model(recipe.model, method)
    _check_partition(recipe)
    _check_public(recipe)
    return check_settings(recipe, method)


def method_of(recipe: Recipe, allow_code: AllowedCode = False) -> Method:
    """Return the method that a recipe names, not yet checked against its other settings."""
    section = recipe.method
    method = build_method(section.name, section.options, section.loss, allow_code=allow_code)
    return _with_topology(_with_clip(method, recipe), recipe)


def _with_topology(method: Method, recipe: Recipe) -> Method:
    """Return the method in rounds without a server, if the recipe has no server."""
    rounds = recipe.rounds
    return with_topology(
        method, rounds.topology, rounds.degree, rounds.graph_seed, recipe.defense.max_weight
    )


def _with_clip(method: Method, recipe: Recipe) -> Method:
    """Return the method, whose compression keeps what differential privacy cuts off."""
    if recipe.dp is None or method.compression is None:
        return method
    return replace(method, compression=replace(method.compression, clip=recipe.dp.clip))


def bind_teacher(recipe: Recipe, allow_code: AllowedCode = False) -> Recipe:
    """Return the recipe with the SHA-256 of its teacher's file, if it names one that is here.

    The digest is part of what a run is resumed by, and of what sites check and agree to.

    Args:
        recipe: A recipe as it was read.
        allow_code: Whether code that it names may be imported.

    Raises:
        RecipeError: The method is unknown, or the recipe records a run that was made from Python.
        DataError: The file cannot be read.
    """
    refuse_python(recipe)
    if recipe.method.teacher_sha256 is not None:
        return recipe
    teacher = method_of(recipe, allow_code).needs.teacher
    if not teacher or not Path(teacher).is_file():
        return recipe
    digest = {"teacher_sha256": sha256_of(Path(teacher))}
    return recipe.model_copy(update={"method": recipe.method.model_copy(update=digest)})


def check_named_code(recipe: Recipe, allowed: AllowedCode) -> None:
    """Refuse a recipe that names code which may not run.

    Raises:
        RecipeError: It does, or it only records a run that was made from Python; the message says
            how to go on.
    """
    refuse_python(recipe)
    for one in recipe.model.networks:
        check_code("model.name", one.name, allowed)
    check_code("method.loss", recipe.method.loss or "", allowed)


def check_settings(recipe: Recipe, method: Method) -> Method:
    """Return the method as a run uses it if the settings of a recipe suit it and each other.

    Args:
        recipe: A recipe, of which the names of data, model and method are not looked at.
        method: The method of the run.

    Returns:
        The method; under a robust rule that merges models itself, with that merge.

    Raises:
        RecipeError: Two settings contradict each other, or one does not suit the method.
    """
    _check_topology(recipe)
    method = _with_topology(method, recipe)
    check_optimizer(method, recipe.local)
    if method.needs.teacher == "":
        raise RecipeError(
            f"{method.name} needs the logits of a teacher: method.options.teacher names the .npz "
            "file that fedbb.data.save_teacher writes; in Python it may be a network or a function"
        )
    if method.distillation is not None and recipe.data.public is None:
        raise RecipeError(
            f"{method.name} learns from public inputs: the section data.public names them; in "
            "Python they are public="
        )
    _check_stopping(recipe)
    _check_scores(recipe)
    if recipe.engine == "central" and method.compression is not None:
        raise RecipeError(
            f"{type(method.compression).__name__} of {method.name} has no place in engine = "
            '"central", where nothing is sent'
        )
    _check_defense(recipe)
    _check_own_models(recipe, method)
    _check_networks(recipe, method)
    if recipe.data.partition.clients is not None:
        _check_clients(recipe, recipe.data.partition.clients)
    check_privacy(recipe, method)
    method = _with_clip(method, recipe)
    return with_robust_merge(method, recipe.defense.rule, recipe.defense.byzantine)


def check_data(recipe: Recipe, method: Method, dataset: Dataset, clients: int | None) -> None:
    """Refuse data that a checked recipe cannot be run on.

    Args:
        recipe: The recipe.
        method: Its method, as `check_recipe` returned it.
        dataset: The data as it was loaded, or its outline without any example.
        clients: Number of clients in the federation, or None where only one of them is known.

    Raises:
        RecipeError: The method is not defined for the task, or there are too few clients.
    """
    _check_task(method, dataset.task)
    if clients is not None:
        _check_clients(recipe, clients)


def _check_task(method: Method, task: Task) -> None:
    if not method.supports(task):
        raise RecipeError(f"{method.name} is not defined for {task} data")


def _check_by_client(model: ModelSpec) -> None:
    """Refuse settings of one network where clients have different ones."""
    if not model.by_client:
        return
    for key in ("options", "weights", "freeze", "classifier", "projection"):
        if getattr(model, key):
            raise RecipeError(
                f"model.{key} is for one network of all clients, and model.by_client names several;"
                ' an entry may be a table: { name = "mlp", options = { … } }'
            )
    names = [one.name for one in model.networks]
    if model.name not in (ModelSpec().name, *names):
        raise RecipeError(
            f"model.name = {model.name!r} has no effect beside model.by_client, which names "
            f"{', '.join(names)}"
        )


def _check_networks(recipe: Recipe, method: Method) -> None:
    """Refuse different networks of clients where models are exchanged."""
    if not recipe.model.by_client:
        return
    if method.exchanged:
        raise RecipeError(
            f"model.by_client gives clients different networks, and {method.exchanged} of "
            f"{method.name} needs models of one form; local, fedmd and rhfl exchange none"
        )
    if recipe.defense.rule is not None or recipe.defense.max_norm is not None:
        raise RecipeError(
            "defense.rule and defense.max_norm look at models, and with model.by_client clients "
            "send none"
        )


def _check_model(model: ModelSpec, method: Method) -> None:
    _check_by_client(model)
    for one in model.networks:
        _check_network_name(one, method)


def _check_network_name(model: ModelSpec, method: Method) -> None:
    check_name(model.name)
    if model.name not in MODELS:
        if model.projection:
            raise RecipeError(
                "model.projection = true adds a head to built-in networks only, not to "
                f"{model.name!r}"
            )
    elif method.needs.projection and model.projection is False:
        raise RecipeError(f"model.projection = false does not suit {method.name}, which needs it")


def _check_partition(recipe: Recipe) -> None:
    partition = recipe.data.partition
    takes = KINDS[partition.kind].takes if partition.kind in KINDS else ()
    if partition.min_samples is not None and "min_samples" not in takes:
        raise RecipeError(f"data.partition.min_samples has no meaning for {partition.kind}")
    if recipe.engine == "central" and partition != Rule():
        raise RecipeError(
            'data.partition has no place in engine = "central", which divides nothing'
        )


def _check_public(recipe: Recipe) -> None:
    """Check what a recipe says of public inputs."""
    public = recipe.data.public
    if public is None:
        return
    if public.name is not None:
        find_entry(public.name)
    elif public.images is None:
        raise RecipeError(
            "data.public needs the name of a data set, or images: how many are taken out of the "
            "training data"
        )
    elif public.path is not None or public.options:
        raise RecipeError("data.public.path and data.public.options need data.public.name")


def _check_stopping(recipe: Recipe) -> None:
    """Check that a run which stops early has validation data, as far as the recipe says.

    Data of the user's may have a validation part; whether it has one is known once it is loaded.
    """
    entry = CATALOGUE.get(recipe.data.name)
    has_own = entry is None or entry.origin == "your files"
    check_stopping(recipe, has_own or recipe.data.validation > 0)


def check_stopping(recipe: Recipe, has_validation: bool) -> None:
    """Refuse to stop a run early by its test score.

    Raises:
        RecipeError: The run may stop early and has no validation data.
    """
    if recipe.rounds.stops_early and not has_validation:
        key = "patience" if recipe.rounds.patience is not None else "target"
        raise RecipeError(
            f"rounds.{key} needs data.validation above 0: a run that stops by its score on test "
            "data would have no unbiased score left"
        )


def _check_scores(recipe: Recipe) -> None:
    """Refuse scores that nobody could compute."""
    if recipe.data.own_test > 0 and recipe.engine == "central":
        raise RecipeError('data.own_test has no place in engine = "central", which has no clients')


def _check_own_models(recipe: Recipe, method: Method) -> None:
    """Refuse what needs one model for all, or several clients, where clients have their own."""
    if recipe.engine == "central" and (method.personal is not None or not method.shares_model):
        raise RecipeError(
            f'engine = "central" trains one model in one place; {method.name} leaves '
            "models, or parts of them, with clients"
        )
    starts = any(type(step).start is not ServerStep.start for step in method.server)
    if starts and recipe.defense.rule is not None:
        raise RecipeError(
            f'defense.rule = "{recipe.defense.rule}" compares models that started alike, and '
            f"{method.name} starts every client from a model of its own"
        )
    if recipe.evaluation.personal is not None:
        _check_personal_scores(recipe, method)
    if method.shares_model:
        return
    for value, key in (
        (recipe.evaluation.threshold, "threshold"),
        (recipe.evaluation.logit_adjustment, "logit_adjustment"),
    ):
        if value:
            raise RecipeError(
                f"evaluation.{key} is for one model of all clients, and under {method.name} every "
                f"client has {method.unshared} for itself"
            )


def _check_personal_scores(recipe: Recipe, method: Method) -> None:
    """Refuse scores of clients' own models where there are none, or nobody may know them."""
    if method.personal is None and method.shares_model:
        raise RecipeError(
            f"evaluation.personal scores the clients' own models, and {method.name} leaves none "
            "with them; fedbb personalize scores the shared model for each client"
        )
    if recipe.data.own_test == 0:
        raise RecipeError("evaluation.personal needs data.own_test: test data of the clients' own")
    if recipe.privacy != "none":
        raise RecipeError(
            f'evaluation.personal and privacy = "{recipe.privacy}" exclude each other: the scores '
            "of single clients are not summed securely"
        )


def _check_topology(recipe: Recipe) -> None:
    """Refuse a topology that is not complete, or that contradicts the rest of the recipe."""
    rounds = recipe.rounds
    if rounds.topology != "random":
        for key in ("degree", "graph_seed"):
            if getattr(rounds, key) is not None:
                raise RecipeError(f'rounds.{key} needs rounds.topology = "random"')
    if rounds.topology is None:
        return
    setting = f'rounds.topology = "{rounds.topology}"'
    if rounds.topology == "random" and rounds.degree is None:
        raise RecipeError(f"{setting} needs rounds.degree, the number of neighbours of a client")
    if recipe.engine == "central":
        raise RecipeError(f'{setting} has no place in engine = "central", which has no clients')
    if recipe.privacy != "none":
        raise RecipeError(
            f'{setting} and privacy = "{recipe.privacy}" exclude each other: secure sums are '
            "over all clients of a round, for a server"
        )
    if recipe.defense.rule is not None:
        raise RecipeError(
            f'{setting} and defense.rule = "{recipe.defense.rule}" exclude each other: the rule '
            "compares models that started alike, at a server"
        )


def _check_defense(recipe: Recipe) -> None:
    """Refuse a defense that contradicts itself, or the rest of the recipe."""
    defense = recipe.defense
    setting = f'defense.rule = "{defense.rule}"'
    if defense.rule is None:
        if defense.byzantine:
            raise RecipeError("defense.byzantine needs a defense.rule that tolerates such clients")
        return
    if recipe.engine == "central":
        raise RecipeError(f'{setting} has no place in engine = "central", which merges nothing')
    if recipe.privacy != "none":
        raise RecipeError(
            f'{setting} and privacy = "{recipe.privacy}" exclude each other: the rule needs every '
            "client's model, and secure aggregation reveals only their sum"
        )
    if defense.rule == "clip":
        if defense.max_norm is None:
            raise RecipeError(f"{setting} needs defense.max_norm, to which it clips")
        if defense.byzantine:
            raise RecipeError(
                f"{setting} bounds every client alike; defense.byzantine has no meaning"
            )
    elif defense.byzantine == 0:
        raise RecipeError(
            f"{setting} needs defense.byzantine, the number of malicious clients to tolerate"
        )


def _check_clients(recipe: Recipe, clients: int) -> None:
    """Refuse a robust rule or a graph that is not possible with this number of clients."""
    defense, rounds = recipe.defense, recipe.rounds
    if rounds.topology is not None:
        make_graph(rounds.topology, clients, rounds.degree, rounds.graph_seed or 0)
    chosen = chosen_number(clients, recipe.rounds.participation)
    if defense.rule is not None and chosen < defense.min_updates:
        raise RecipeError(
            f'defense.rule = "{defense.rule}" needs {defense.min_updates} clients in a round '
            f"to tolerate {defense.byzantine} malicious ones, and {chosen} train"
        )
