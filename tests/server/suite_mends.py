"""A pytest plugin for the client suite, loaded by clients_test.py: two of its tests could not pass anywhere without."""

import sys

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory):
    """A folder with a number for a name: test_hub_paths_that_leave looks for a word in the names of all folders, which
    pytest makes from the names of tests, its own too."""
    return tmp_path_factory.mktemp("test", numbered=True)


def pytest_collection_finish(session):
    """Lets the suite's proxy hear CONNECT, for which test_ollama_default_names asks it: http.server answers methods
    that its handler lacks by itself. Tests marked `pull` import the module of the proxy, others need not."""
    registries = sys.modules.get("registries")
    if registries is not None:
        registries._Handler.do_CONNECT = registries._Handler._any
    elif any(item.get_closest_marker("pull") for item in session.items):
        raise pytest.UsageError("suite_mends.py: no module registries, whose handler it mends for the tests of `pull`")
