"""The library of charts is built once for all workers: building it takes two seconds."""

from collections.abc import Iterator

import pytest

from ptxdiff.diskcache import cache_folder


@pytest.fixture(scope="session", autouse=True)
def _library_is_kept() -> Iterator[None]:
    """Have pages that name no cache folder use that of ptxdiff."""
    from ptxdiff.reports import charts

    library, folder = charts.library, cache_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "library", lambda given=None: library(given or folder))
        yield
