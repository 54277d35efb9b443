"""Signatures of functions that clients call: the JSON Schema of their arguments, and arguments from JSON.

``inspect_function`` is the entry point; ``Signature.read`` converts the arguments of each call. The file also has the
introspection of callables, and the ``Header`` annotation for arguments that HTTP clients repeat in headers.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from mcplumb._fast.plain_functions import is_plain, is_plain_async, plain_parameters
from mcplumb.errors import UsageError
from mcplumb.server.schema.docstrings import Docstring, read_docstring
from mcplumb.server.schema.from_annotation import is_field_info, parse_type, resolve_annotation
from mcplumb.server.schema.read_value import Fault, ValueReader, format_path, read_custom, shorten
from mcplumb.server.schema.to_json_schema import schema_for
from mcplumb.server.schema.type_tree import NO_DEFAULT, Completer, Field, Record, completer_of

if TYPE_CHECKING:
    from mcplumb.protocol.http_headers import ParamHeaders

__all__ = [
    "MAX_FAULTS",
    "MISSING",
    "BadArguments",
    "Header",
    "Parameter",
    "Signature",
    "describe_faults",
    "enclosing_names",
    "header_schema",
    "headers_in",
    "inspect_function",
    "is_async",
    "parameters_of",
    "unwrap",
]


# Introspection of callables.

#: Stands for an annotation or a default that a function does not have.
MISSING: Final[Any] = object()

#: The kinds of parameters that cannot be passed by name, as ``inspect`` calls them.
_REFUSED = {
    "POSITIONAL_ONLY": "positional-only",
    "VAR_POSITIONAL": "a list of any arguments (*)",
    "VAR_KEYWORD": "a dict of any arguments (**)",
}


def unwrap(function: Callable[..., Any]) -> Any:
    """Return the function inside partials, methods, ``functools.wraps`` decorators, and objects with ``__call__``."""
    *_, source = _layers(function)
    return source


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or one that it wraps, is a coroutine function."""
    if is_plain(function):
        return is_plain_async(function)
    from inspect import iscoroutinefunction

    return any(map(iscoroutinefunction, _layers(function)))


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a function, as Python declares it."""

    name: str
    #: ``MISSING`` if there is none.
    annotation: Any
    default: Any
    #: Why clients cannot pass it by its name; empty if they can.
    refused: str = ""


def parameters_of(function: Callable[..., Any], label: str) -> tuple[list[Parameter], Any]:
    """Return the parameters of a function, without those that a partial has bound, and its return annotation."""
    if is_plain(function):
        declared = [Parameter(*parameter) for parameter in plain_parameters(function, MISSING)]
        return declared, function.__annotations__.get("return", MISSING)
    from inspect import signature

    try:
        found = signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{label} has no signature that Python can inspect: wrap it in a function.") from error
    filled = {name for layer in _layers(function) if isinstance(layer, functools.partial) for name in layer.keywords}
    declared = [
        Parameter(
            name,
            MISSING if each.annotation is each.empty else each.annotation,
            MISSING if each.default is each.empty else each.default,
            _REFUSED.get(each.kind.name, ""),
        )
        for name, each in found.parameters.items()
        if name not in filled
    ]
    return declared, MISSING if found.return_annotation is found.empty else found.return_annotation


def enclosing_names(source: Any) -> dict[str, Any]:
    """Return the names that string annotations of a function may use besides those of its module.

    These are its type parameters, its closure and, while the enclosing function still runs, that function's locals.
    """
    code = getattr(source, "__code__", None)
    if code is None:
        return {}
    names: dict[str, Any] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if code in frame.f_code.co_consts and frame.f_code.co_name != "<module>":
            names.update(frame.f_locals)
            break
        frame = frame.f_back
    for name, cell in zip(code.co_freevars, source.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
    names.update({parameter.__name__: parameter for parameter in getattr(source, "__type_params__", ())})
    return names


def _layers(function: Any) -> Iterator[Any]:
    """Yield a callable and what it wraps, down to a plain function or a callable that Python cannot unwrap."""
    while True:
        yield function
        if is_plain(function):
            return
        import inspect  # most functions are plain, and it takes long to load

        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isclass(function) and not isinstance(function.__init__, types.WrapperDescriptorType):
            function = function.__init__
        elif not inspect.isroutine(function) and not inspect.isclass(function):
            function = type(function).__call__
        else:
            return


# Arguments that HTTP clients repeat in headers, for gateways between client and server.

_ANNOTATION = "x-mcp-header"
_NULL = {"type": "null"}


class Header(msgspec.Struct, frozen=True):
    """Annotates a tool's parameter: HTTP clients repeat its value in the header ``Mcp-Param-…``.

    ``Annotated[str, Header("Region")]`` is for strings, integers and booleans, which may be optional. A server refuses
    a call whose header and argument differ, so a gateway can route or meter by the header alone. Every intermediary can
    read the header: do not use it for secrets.
    """

    #: The rest of the header's name: letters, digits, and some characters such as the hyphen.
    name: str

    @property
    def json_schema_extra(self) -> dict[str, Any]:
        """The annotation in the parameter's schema."""
        return {_ANNOTATION: self.name}


def header_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the input schema of a function without null as a type of properties that have a header.

    A header cannot represent null, and clients need not support nullable types with headers; they omit the argument.
    """
    properties = {name: _without_null(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def headers_in(schema: dict[str, Any], label: str) -> ParamHeaders | None:
    """Return the headers that an input schema asks for; raise UsageError about ``label`` if they are invalid."""
    if _ANNOTATION.encode() not in msgspec.json.encode(schema):
        return None
    from mcplumb.protocol.http_headers import BadAnnotation, param_headers  # most tools have none

    try:
        return param_headers(schema)
    except BadAnnotation as error:
        raise UsageError(f"HTTP clients would refuse the {label}. {error}") from None


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", ()) if option != _NULL]
    if len(options) != 1 or _ANNOTATION not in schema | options[0]:
        return schema
    others = {key: part for key, part in schema.items() if key != "anyOf" and (key, part) != ("default", None)}
    return {**options[0], **others}


# Signatures.

#: The number of faults that an error lists: the model fixes these first, and then learns of the others.
MAX_FAULTS = 10
_annotated: Any = Annotated  # typed as Any, because its arguments are known at run time only
# Defaults of these types can be Struct defaults. Others need a factory, so that all calls get the same object.
_SHARED = (bool, int, float, str, bytes, type(None))


class BadArguments(Exception):
    """The arguments of a call are invalid. The message explains the faults to the model that chose them."""


class _Parameter(msgspec.Struct, frozen=True):
    """A parameter that clients fill in."""

    field: Field
    #: Whether msgspec reads it.
    is_native: bool
    #: Returns the default for a call; None if the parameter is required.
    default: Callable[[], Any] | None
    #: Sets the defaults that msgspec leaves out; None if there are none.
    complete: Completer | None


class Signature:
    """The parameters and the return type of a function, and a reader for its arguments."""

    __slots__ = (
        "_decode",
        "_parameters",
        "_record",
        "_slow",
        "_strict",
        "_struct",
        "_unfinished",
        "context_name",
        "docstring",
        "is_async",
        "names",
        "required",
        "returns",
        "schema",
    )

    def __init__(
        self,
        parameters: Collection[_Parameter],
        *,
        docstring: Docstring,
        context_name: str | None,
        returns: Any,
        is_async: bool,
        strict: bool,
    ) -> None:
        self.docstring = docstring
        #: The parameter that takes the context, or None.
        self.context_name = context_name
        #: The return annotation, or ``MISSING``.
        self.returns = returns
        #: Whether the function's return value must be awaited.
        self.is_async = is_async
        fields = [parameter.field for parameter in parameters]
        #: The parameters that clients fill in, in their order, and the required ones of these.
        self.names = tuple(field.key for field in fields)
        self.required = tuple(field.key for field in fields if field.required)
        self._record = Record(kind=dict, name="arguments", make=dict, fields=fields, is_closed=True)
        #: The JSON Schema of the arguments.
        self.schema = schema_for(self._record)
        self._strict = strict
        self._parameters = parameters
        self._slow = [parameter for parameter in parameters if not parameter.is_native]
        self._unfinished = [parameter for parameter in parameters if parameter.complete or not parameter.is_native]
        self._struct = _struct_of(parameters)
        self._decode = msgspec.json.Decoder(self._struct, strict=strict, dec_hook=read_custom).decode

    def read(self, arguments: Raw | Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the keyword arguments for the function: validated, converted, and with defaults.

        Raises ``BadArguments``, which lists the faults.
        """
        try:
            if isinstance(arguments, Raw):
                values = asdict(self._decode(arguments))
            elif self._slow:
                return self._walk(arguments)
            else:
                values = asdict(
                    msgspec.convert(
                        arguments or {}, self._struct, strict=self._strict, dec_hook=read_custom, str_keys=True
                    )
                )
        except (msgspec.ValidationError, TypeError, RecursionError):
            return self._walk(arguments)
        for parameter in self._unfinished:
            if not self._finish(parameter, values):
                return self._walk(arguments)
        return values

    def _finish(self, parameter: _Parameter, values: dict[str, Any]) -> bool:
        """Complete an argument that msgspec left unfinished; return False if it is invalid."""
        value = values[parameter.field.key]
        if parameter.complete is not None:
            try:
                parameter.complete(value)
            except RecursionError:
                return False
        elif isinstance(value, Raw):  # otherwise it is the default
            reader = ValueReader(strict=self._strict)
            values[parameter.field.key] = reader.read_whole(parameter.field.shape, value)
            return not reader.faults
        return True

    def read_as_one(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for a function whose only parameter takes all arguments as one value."""
        (parameter,) = self._parameters
        reader = ValueReader(strict=self._strict)
        value = reader.read_whole(parameter.field.shape, arguments)
        if reader.faults:
            raise BadArguments(describe_faults(reader.faults))
        return {parameter.field.key: value}

    def _walk(self, arguments: Raw | Mapping[str, Any] | None) -> dict[str, Any]:
        """Read the arguments by their shapes: msgspec may refuse valid ones, and this finds all faults."""
        if not isinstance(arguments, Raw):
            arguments = dict(arguments or {})
        elif bytes(arguments) == b"null":
            arguments = {}
        reader = ValueReader(strict=self._strict)
        values: dict[str, Any] = reader.read_whole(self._record, arguments)
        if reader.faults:
            raise BadArguments(describe_faults(reader.faults))
        for parameter in self._parameters:
            if parameter.default is not None and parameter.field.key not in values:
                values[parameter.field.key] = parameter.default()
        return values


def inspect_function(function: Callable[..., Any], *, context: type, strict: bool = True) -> Signature:
    """Return the signature of a function as clients see it; raise UsageError if clients could not call it.

    The server fills in a parameter annotated with ``context``: it is not in the schema, and not read. Unless
    ``strict``, strings are converted to the parameters' types.
    """
    if not callable(function):
        raise UsageError(f"{function!r} is not a function.")
    source = unwrap(function)
    label = f"The function {getattr(source, '__qualname__', source)!r}"
    declared, returns = parameters_of(function, label)
    # The context's class is often imported for type checkers only.
    names = {context.__name__: context, **getattr(source, "__globals__", {})}
    scope = enclosing_names(source)
    docstring = read_docstring(getattr(source, "__doc__", None))
    context_name = None
    parameters = []
    for parameter in declared:
        what = f"{label} has a parameter {parameter.name!r} that"
        annotation = resolve_annotation(parameter.annotation, names, scope, what)
        if _is_context(annotation, context):
            if context_name is not None:
                raise UsageError(f"{what} takes the context, as {context_name!r} does: leave one of them out.")
            context_name = parameter.name
        else:
            described = docstring.arguments.get(parameter.name, "")
            parameters.append(_read_parameter(parameter, annotation, described, {**names, **scope}, what))
    return Signature(
        parameters,
        docstring=docstring,
        context_name=context_name,
        returns=resolve_annotation(returns, names, scope, f"{label} has a return annotation that"),
        is_async=is_async(function),
        strict=strict,
    )


def _read_parameter(
    parameter: Parameter, annotation: Any, description: str, scope: Mapping[str, Any], what: str
) -> _Parameter:
    if parameter.refused:
        raise UsageError(f"{what} is {parameter.refused}: clients pass each argument by its name.")
    if parameter.name.startswith("__"):
        raise UsageError(f"{what} starts with two underscores, which Python reserves: rename it.")
    if annotation is MISSING:
        if parameter.name == "self":
            raise UsageError(
                f"{what} clients cannot fill in: register the method of an object (thing.method), not of its class."
            )
        annotation = Any
    default, factory = parameter.default, None
    if is_field_info(default):
        annotation = _annotated[annotation, default]
        default, factory = MISSING if default.is_required() else default.default, default.default_factory
    if default is None and annotation is not Any:
        annotation = _or_none(annotation)
    try:
        parsed = parse_type(annotation, scope)
    except UsageError as error:
        raise UsageError(f"{what} clients cannot fill in. {error}") from None
    if default is not MISSING and factory is None:
        factory = _always(default)
    field = Field(
        key=parameter.name,
        argument=parameter.name,
        shape=parsed.shape,
        required=factory is None,
        description=description,
        default=NO_DEFAULT if default is MISSING else default,
    )
    return _Parameter(field, parsed.is_native, factory, completer_of(parsed.shape) if parsed.is_native else None)


def _struct_of(parameters: Collection[_Parameter]) -> type[msgspec.Struct]:
    """Return the Struct type into which msgspec reads the arguments. Arguments that it cannot read stay raw."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        field = parameter.field
        kind = field.shape.kind if parameter.is_native else Raw
        if parameter.default is None:
            fields.append((field.key, kind))
        elif isinstance(field.default, _SHARED):
            fields.append((field.key, kind, field.default))
        else:
            fields.append((field.key, kind, msgspec.field(default_factory=parameter.default)))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def _is_context(annotation: Any, context: type) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(_is_context(member, context) for member in get_args(annotation))
    if origin is Annotated:
        return _is_context(get_args(annotation)[0], context)
    kind = origin or annotation
    return isinstance(kind, type) and issubclass(kind, context)


def _or_none(annotation: Any) -> Any:
    """Return the annotation with None added: authors often omit it for a parameter whose default is None."""
    if get_origin(annotation) is Annotated:
        inner, *items = get_args(annotation)
        return _annotated[(_or_none(inner), *items)]
    try:
        return annotation | None
    except TypeError:  # not a type: `parse_type` reports it
        return annotation


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def describe_faults(faults: list[Fault]) -> str:
    """Return the faults of a call's arguments as sentences for the model that chose them, at most ``MAX_FAULTS``."""
    sentences = list(map(_in_a_sentence, faults[:MAX_FAULTS]))
    if len(faults) > MAX_FAULTS:
        sentences.append("There are more errors.")
    return "\n".join(sentences)


def _in_a_sentence(fault: Fault) -> str:
    path, reason = fault
    if not path:
        return f"The arguments are invalid: {shorten(reason)}."
    name, *inner = path
    where = f", at {shorten(format_path(inner))}" if inner else ""
    end = "" if reason.endswith(("?", ".", "!")) else "."
    return f"Argument {shorten(repr(name))}{where}: {shorten(reason)}{end}"
