"""A missing browser is a skip, but a failure on CI."""

import pytest

from helpers.browser import require_browser


def test_a_missing_browser_fails_on_ci_and_skips_elsewhere():
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        require_browser("no Chromium on the PATH", {"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        require_browser("no Chromium on the PATH", {})


@pytest.mark.parametrize("environment", [{"CI": "true"}, {}])
def test_a_browser_that_is_there_is_used(environment):
    require_browser(None, environment)
