"""Python types and signatures as JSON Schema, and JSON as Python values."""
