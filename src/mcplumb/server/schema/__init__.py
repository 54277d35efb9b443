"""Python types and signatures to JSON Schema, and JSON to Python values.

An annotation is parsed into a tree of shapes (``from_annotation``). The tree is written as a JSON Schema
(``to_json_schema``) and used to read values (``read_value``). The entry points are ``signature``,
for the arguments of a function, and ``type_codec``, for a single type.
"""
