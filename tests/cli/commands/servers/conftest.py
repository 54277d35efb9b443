"""A home folder and a project of their own for every test."""

from tests.kit.home import home, project

__all__ = ["home", "project"]
