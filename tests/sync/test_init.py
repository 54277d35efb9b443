from __future__ import annotations

import mcplumb.client
import mcplumb.sync
from tests.repo.test_import_cost import foreign, loaded


def test_it_offers_what_the_async_client_does() -> None:
    assert mcplumb.sync.__all__ == mcplumb.client.__all__


def test_only_what_waits_is_another_one() -> None:
    ours = {name for name in mcplumb.sync.__all__ if getattr(mcplumb.sync, name) is not getattr(mcplumb.client, name)}
    assert ours == {"Changes", "Client", "Connecting", "connect"}


def test_it_loads_the_client_and_hardly_anything_else() -> None:
    names = loaded("import mcplumb.sync")
    more = names - loaded("import mcplumb.client, asyncio")
    assert {name for name in more if not name.startswith("mcplumb.sync")} <= {"atexit", "queue", "_queue"}
    assert foreign(names) == foreign(loaded("import mcplumb.client"))
    assert not {name for name in names if name.startswith(("mcplumb.server", "mcplumb.cli."))}
