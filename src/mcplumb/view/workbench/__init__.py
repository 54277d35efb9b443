"""The section *Workbench*: use a server by hand."""
