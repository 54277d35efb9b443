"""``python -m mcplumb`` is ``mcplumb``."""

from mcplumb.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
