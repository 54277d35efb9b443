"""Every test has a home folder and a project of its own."""

from tests.kit.home import home, project

__all__ = ["home", "project"]
