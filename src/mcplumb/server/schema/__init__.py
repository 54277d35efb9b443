"""Python types and signatures to JSON Schema, and JSON to Python values.

An annotation is parsed into a tree of shapes (``from_annotation``). The tree is written as a JSON Schema
(``to_json_schema``) and used to read values (``read_value``). ``signature`` and ``type_codec`` are the entry points: for
the arguments of a function, and for a single type.
"""
