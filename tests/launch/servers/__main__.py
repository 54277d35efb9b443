"""Runs one of the programs in this folder, from anywhere: ``python tests/launch/servers NAME OPTIONS``."""

import runpy
import sys

sys.path[0] = __file__.rpartition("/tests/")[0]
runpy.run_module(f"tests.launch.servers.{sys.argv[1]}", run_name="__main__")
