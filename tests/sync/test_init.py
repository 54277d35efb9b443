from __future__ import annotations

import pytest

import mcplumb.client
import mcplumb.sync
from mcplumb import Context
from tests.repo.test_import_cost import foreign, loaded


def test_it_offers_what_the_async_client_does_and_a_context() -> None:
    assert mcplumb.sync.__all__ == sorted([*mcplumb.client.__all__, "Context"])
    assert dir(mcplumb.sync) == mcplumb.sync.__all__


def test_only_what_waits_is_another_one() -> None:
    ours = {name for name in mcplumb.client.__all__ if getattr(mcplumb.sync, name) is not getattr(mcplumb.client, name)}
    assert ours == {
        *("Changes", "Client", "Connecting", "connect"),
        *("ConnectingAll", "Group", "GroupChanges", "connect_all"),
    }


def test_a_context_is_the_same_when_it_runs() -> None:
    assert mcplumb.sync.Context is Context


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'mcplumb\.sync' has no attribute 'nothing'"):
        mcplumb.sync.nothing  # type: ignore[attr-defined] # noqa: B018


def test_the_client_loads_hardly_anything_else() -> None:
    names = loaded("from mcplumb.sync import connect")
    more = names - loaded("import mcplumb.client, asyncio")
    assert {name for name in more if not name.startswith("mcplumb.sync")} <= {"atexit", "queue", "_queue"}
    assert foreign(names) == foreign(loaded("import mcplumb.client"))
    assert not {name for name in names if name.startswith(("mcplumb.server", "mcplumb.cli."))}


def test_a_server_with_a_context_loads_no_client() -> None:
    names = loaded("from mcplumb.sync import Context; import mcplumb.server.server")
    assert names == loaded("import mcplumb.server.server") | {"mcplumb.sync"}
