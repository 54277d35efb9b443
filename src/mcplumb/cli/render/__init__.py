"""Output of the command line: text, tables, JSON, content, schemas and progress."""
