from __future__ import annotations

import mcpipe.client
import mcpipe.sync
from tests.repo.test_import_cost import foreign, loaded


def test_it_offers_what_the_async_client_does() -> None:
    assert mcpipe.sync.__all__ == mcpipe.client.__all__


def test_only_what_waits_is_another_one() -> None:
    ours = {name for name in mcpipe.sync.__all__ if getattr(mcpipe.sync, name) is not getattr(mcpipe.client, name)}
    assert ours == {"Changes", "Client", "Connecting", "connect"}


def test_it_loads_the_client_and_hardly_anything_else() -> None:
    names = loaded("import mcpipe.sync")
    more = names - loaded("import mcpipe.client, asyncio")
    assert {name for name in more if not name.startswith("mcpipe.sync")} <= {"atexit", "queue", "_queue"}
    assert foreign(names) == foreign(loaded("import mcpipe.client"))
    assert not {name for name in names if name.startswith(("mcpipe.server", "mcpipe.cli."))}
