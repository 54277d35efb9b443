"""Python types as trees: made from annotations, written as JSON schemas, and used to read values piece by piece."""
