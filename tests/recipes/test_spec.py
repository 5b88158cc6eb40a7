from fedbb.recipes.spec import LocalSpec
from fedbb.training.config import LocalConfig


def test_a_recipe_without_local_settings_trains_by_the_plans_own_defaults():
    assert LocalConfig(**LocalSpec().model_dump()) == LocalConfig()
