"""Signatures of functions that clients call: their argument schema, and arguments from JSON."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec.structs import asdict

from mcplumb.errors import UsageError
from mcplumb.server.schema.docstrings import Docstring, read_docstring
from mcplumb.server.schema.from_annotation import is_field_info, look, resolved
from mcplumb.server.schema.read_value import Fault, Reading, cut, located, read_custom
from mcplumb.server.schema.shapes import NO_DEFAULT, Completer, Field, Record, completer_of
from mcplumb.server.schema.to_json_schema import schema_for

if TYPE_CHECKING:
    from mcplumb.protocol.http_headers import ParamHeaders

__all__ = [
    "MAX_FAULTS",
    "MISSING",
    "BadArguments",
    "Header",
    "Signature",
    "header_schema",
    "headers_in",
    "in_sentences",
    "inspect_function",
    "is_async",
    "names_around",
    "parameters_of",
    "source_of",
]


# What Python knows about a callable: what it was written as, where, and whether it has to be awaited.


def source_of(function: Callable[..., Any]) -> Any:
    """The ``def`` behind partials, methods, decorators that use ``functools.wraps``, and objects with ``__call__``."""
    *_, source = _layers(function)
    return source


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or one that it wraps, is a coroutine function."""
    return any(map(inspect.iscoroutinefunction, _layers(function)))


def parameters_of(function: Callable[..., Any], spoken: str) -> inspect.Signature:
    """The signature of a function without the arguments that a partial has filled in."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{spoken} has no signature that Python could tell: wrap it in a function of yours."
        ) from error
    filled = {name for layer in _layers(function) if isinstance(layer, functools.partial) for name in layer.keywords}
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in filled])


def names_around(source: Any) -> dict[str, Any]:
    """The names that surround a function without being in its module: for annotations that are strings.

    They are its type parameters, what it has in its closure and, while the function in which it was defined still
    runs, the names in there.
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
        except ValueError:  # not yet filled
            continue
    names.update({parameter.__name__: parameter for parameter in getattr(source, "__type_params__", ())})
    return names


def _layers(function: Any) -> Iterator[Any]:
    """A callable, and what is inside it, down to a plain function or something that Python does not look into."""
    while True:
        yield function
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


# Arguments that HTTP clients repeat in headers, for whoever stands between client and server.


_ANNOTATION = "x-mcp-header"
_NULL = {"type": "null"}


class Header(msgspec.Struct, frozen=True):
    """Stands beside the type of a tool's parameter: HTTP clients repeat it in the header ``Mcp-Param-…``.

    ``Annotated[str, Header("Region")]`` is for texts, integers and booleans, which may be None as well. A server takes
    no call whose header and argument differ, so a gateway can route or meter by the header alone. Whoever is on the way
    can read it: this is nothing for secrets.
    """

    #: The rest of the header's name: letters, digits, and some signs such as the hyphen.
    name: str

    @property
    def json_schema_extra(self) -> dict[str, Any]:
        """What the schema of the parameter says of it."""
        return {_ANNOTATION: self.name}


def header_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The input schema of a function as clients may have it: no annotated property says that it may be null.

    Null has no header, and clients need not know a type that has one and may be null. They leave the argument out.
    """
    properties = {name: _without_null(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def headers_in(schema: dict[str, Any], spoken: str) -> ParamHeaders | None:
    """The headers that an input schema asks for; a UsageError about ``spoken`` if clients would refuse it for that."""
    if _ANNOTATION.encode() not in msgspec.json.encode(schema):
        return None
    from mcplumb.protocol.http_headers import BadAnnotation, param_headers  # most tools have none

    try:
        return param_headers(schema)
    except BadAnnotation as error:
        raise UsageError(f"HTTP clients would refuse the {spoken}. {error}") from error


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", ()) if option != _NULL]
    if len(options) != 1 or _ANNOTATION not in schema | options[0]:
        return schema
    others = {key: part for key, part in schema.items() if key != "anyOf" and (key, part) != ("default", None)}
    return {**options[0], **others}


# The signature of a function that clients call: the schema of its arguments, and the arguments from JSON.


#: What ``Signature.returns`` is for a function that does not say what it returns.
MISSING: Final[Any] = inspect.Signature.empty

#: Faults that an error lists: the model that reads them mends these, and learns of the others then.
MAX_FAULTS = 10
_REFUSED: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.VAR_POSITIONAL: "a list of any arguments (*)",
    inspect.Parameter.VAR_KEYWORD: "a dict of any arguments (**)",
}
_annotated: Any = Annotated  # not for the type checker: what it is given is known at run time only
# A Struct hands these out as they are. For the others it has to be told that one object is meant for all calls.
_SHARED = (bool, int, float, str, bytes, type(None))


class BadArguments(Exception):
    """The arguments of a call do not fit. The text says what is wrong with each, to the model that chose them."""


class _Parameter(msgspec.Struct, frozen=True):
    """A parameter that clients fill in."""

    field: Field
    #: Whether msgspec reads it.
    is_native: bool
    #: Gives the default for a call; None if there is none.
    default: Callable[[], Any] | None
    #: Adds what msgspec leaves out; None if that is nothing.
    complete: Completer | None


class Signature:
    """What a function takes and gives, and how its arguments are read."""

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
        #: Whether what the function returns has to be awaited.
        self.is_async = is_async
        fields = [parameter.field for parameter in parameters]
        #: The parameters that clients fill in, in their order, and those of them that they have to.
        self.names = tuple(field.key for field in fields)
        self.required = tuple(field.key for field in fields if field.required)
        self._record = Record(kind=dict, name="arguments", make=dict, fields=fields, is_closed=True)
        #: The JSON schema of the arguments.
        self.schema = schema_for(self._record)
        self._strict = strict
        self._parameters = parameters
        self._slow = [parameter for parameter in parameters if not parameter.is_native]
        self._unfinished = [parameter for parameter in parameters if parameter.complete or not parameter.is_native]
        self._struct = _struct_of(parameters)
        self._decode = msgspec.json.Decoder(self._struct, strict=strict, dec_hook=read_custom).decode

    def read(self, arguments: msgspec.Raw | Mapping[str, Any] | None) -> dict[str, Any]:
        """The keyword arguments for the function: checked, converted, and with its defaults.

        Raises ``BadArguments``, which says all that is wrong.
        """
        try:
            if isinstance(arguments, msgspec.Raw):
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
        """Do what msgspec has left to do for an argument; whether that can be done."""
        value = values[parameter.field.key]
        if parameter.complete is not None:
            try:
                parameter.complete(value)
            except RecursionError:
                return False
        elif isinstance(value, msgspec.Raw):  # otherwise it is the default
            reading = Reading(strict=self._strict)
            values[parameter.field.key] = reading.whole(parameter.field.shape, value)
            return not reading.faults
        return True

    def read_as_one(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The same for a function whose only parameter takes all the arguments."""
        (parameter,) = self._parameters
        reading = Reading(strict=self._strict)
        value = reading.whole(parameter.field.shape, arguments)
        if reading.faults:
            raise BadArguments(in_sentences(reading.faults))
        return {parameter.field.key: value}

    def _walk(self, arguments: msgspec.Raw | Mapping[str, Any] | None) -> dict[str, Any]:
        """Reads piece by piece: what msgspec refuses may be right yet, and if not, all that is wrong is found."""
        if not isinstance(arguments, msgspec.Raw):
            arguments = dict(arguments or {})
        elif bytes(arguments) == b"null":
            arguments = {}
        reading = Reading(strict=self._strict)
        values: dict[str, Any] = reading.whole(self._record, arguments)
        if reading.faults:
            raise BadArguments(in_sentences(reading.faults))
        for parameter in self._parameters:
            if parameter.default is not None and parameter.field.key not in values:
                values[parameter.field.key] = parameter.default()
        return values


def inspect_function(function: Callable[..., Any], *, context: type, strict: bool = True) -> Signature:
    """The signature of a function, as clients see it; a UsageError if they could not call it.

    A parameter annotated with ``context`` is for the caller to fill in: it is not in the schema, and not read.
    Unless ``strict``, a text may stand for another value.
    """
    if not callable(function):
        raise UsageError(f"{function!r} is not a function.")
    source = source_of(function)
    spoken = f"The function {getattr(source, '__qualname__', source)!r}"
    signature = parameters_of(function, spoken)
    # The context's class is often imported for type checkers only.
    names = {context.__name__: context, **getattr(source, "__globals__", {})}
    scope = names_around(source)
    docstring = read_docstring(getattr(source, "__doc__", None))
    context_name = None
    parameters = []
    for parameter in signature.parameters.values():
        what = f"{spoken} has a parameter {parameter.name!r} that"
        annotation = resolved(parameter.annotation, names, scope, what)
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
        returns=resolved(signature.return_annotation, names, scope, f"{spoken} has a return annotation that"),
        is_async=is_async(function),
        strict=strict,
    )


def _read_parameter(
    parameter: inspect.Parameter, annotation: Any, description: str, scope: Mapping[str, Any], what: str
) -> _Parameter:
    if (refused := _REFUSED.get(parameter.kind)) is not None:
        raise UsageError(f"{what} is {refused}: clients pass each argument by its name.")
    if parameter.name.startswith("__"):
        raise UsageError(f"{what} has a name for Python's own use: clients need one without two underscores before it.")
    if annotation is MISSING:
        if parameter.name == "self":
            raise UsageError(f"{what} nobody fills in: it is a method, so take it from an object (thing.method).")
        annotation = Any
    default, factory = parameter.default, None
    if is_field_info(default):
        annotation = _annotated[annotation, default]
        default, factory = MISSING if default.is_required() else default.default, default.default_factory
    if default is None and annotation is not Any:
        annotation = _or_none(annotation)
    try:
        looked = look(annotation, scope)
    except UsageError as error:
        raise UsageError(f"{what} clients could not fill in. {error}") from error
    if default is not MISSING and factory is None:
        factory = _always(default)
    field = Field(
        key=parameter.name,
        argument=parameter.name,
        shape=looked.shape,
        required=factory is None,
        description=description,
        default=NO_DEFAULT if default is MISSING else default,
    )
    return _Parameter(field, looked.is_native, factory, completer_of(looked.shape) if looked.is_native else None)


def _struct_of(parameters: Collection[_Parameter]) -> type[msgspec.Struct]:
    """The Struct that msgspec reads the arguments into. What it cannot read, it leaves raw."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        field = parameter.field
        kind = field.shape.kind if parameter.is_native else msgspec.Raw
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
    """The type of a parameter whose default is None, which some leave out of its annotation."""
    if get_origin(annotation) is Annotated:
        inner, *items = get_args(annotation)
        return _annotated[(_or_none(inner), *items)]
    try:
        return annotation | None
    except TypeError:  # it is no type, as will be said
        return annotation


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def in_sentences(faults: list[Fault]) -> str:
    """What is wrong with the arguments of a call, for the model that chose them; no more than it can mend at once."""
    sentences = list(map(_in_a_sentence, faults[:MAX_FAULTS]))
    if len(faults) > MAX_FAULTS:
        sentences.append("More is wrong.")
    return "\n".join(sentences)


def _in_a_sentence(fault: Fault) -> str:
    path, reason = fault
    if not path:
        return f"The arguments are wrong: {cut(reason)}."
    name, *inner = path
    where = f", at {cut(located(inner))}" if inner else ""
    end = "" if reason.endswith(("?", ".", "!")) else "."
    return f"Argument {cut(repr(name))}{where}: {cut(reason)}{end}"
