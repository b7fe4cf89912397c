import pytest

import cistern


@pytest.fixture
def pool():
    return cistern.Pool(name="test")


@pytest.fixture(autouse=True)
def numpy_keeps_its_allocator():
    yield
    cistern.disable_numpy()
