"""The rules behind findings: for each, the requirement, the severity, why it matters, and what to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["NEED_ALL_RECORDS", "RULES", "Rule", "Severity"]

#: An *error* breaks a rule of the protocol; a *warning* is allowed but troublesome; a *note* is about the recording.
Severity: TypeAlias = Literal["error", "warning", "note"]


class Rule(msgspec.Struct, frozen=True):
    """One kind of finding."""

    key: str
    #: The row of the ledger of requirements.
    requirement: str
    severity: Severity
    title: str
    why: str
    advice: str


_ALL = (
    # Lines
    Rule(
        "stray-output",
        "FRM-2",
        "error",
        "Output that is not a message",
        "Only messages may go to the client: a server's stdout is for nothing else. Many clients log an error for each "
        "such line, and some disconnect.",
        "Print to stderr instead, and look for a print(), a logger or a child process that writes to stdout.",
    ),
    Rule(
        "stray-input",
        "FRM-3",
        "error",
        "Input that is not a message",
        "Only messages may be sent to a server's stdin. Servers skip the line, or stop.",
        "Fix what the client, or a wrapper around the server, writes.",
    ),
    Rule(
        "not-utf8",
        "FRM-1",
        "error",
        "A line that is not UTF-8",
        "Messages are UTF-8. Some clients hang for ever after one invalid byte.",
        "Encode output as UTF-8, whatever the locale is; in Python, set PYTHONUTF8=1.",
    ),
    Rule(
        "split-message",
        "FRM-1",
        "error",
        "A message on several lines",
        "A message is one line. Each of its lines is read as a message of its own, and skipped.",
        "Write JSON without indentation and line breaks.",
    ),
    Rule(
        "bad-message",
        "FRM-1",
        "error",
        "JSON that is not a message",
        "Without the members that JSON-RPC requires, the message is skipped, and its receiver waits in vain.",
        'Send an object with "jsonrpc": "2.0" and exactly one of a method, a result and an error.',
    ),
    Rule(
        "long-line",
        "FRM-5",
        "warning",
        "A very long line",
        "Other implementations stop reading at lines of 10 MiB, and some at 64 KiB.",
        "Return a link to a resource, or pages, instead of everything at once.",
    ),
    Rule(
        "torn-end",
        "FRM-6",
        "error",
        "The stream ends within a line",
        "The message is lost, and a request that it belongs to gets no answer.",
        "Flush the output, and let the program end only after its last line is written.",
    ),
    Rule(
        "batch",
        "FRM-10",
        "error",
        "A batch in a revision without batches",
        "Only one revision has batches. In the others, the whole line is refused.",
        "Send each message on a line of its own.",
    ),
    # Ids
    Rule(
        "bad-id",
        "FRM-8",
        "error",
        "An invalid id",
        "An id is a string or an integer, never null. The request cannot be answered.",
        "Number the requests.",
    ),
    Rule(
        "duplicate-id",
        "FRM-8",
        "error",
        "The id of a request that is still open",
        "The answers to the two requests cannot be told apart.",
        "Use each id once.",
    ),
    Rule(
        "changed-id",
        "FRM-8",
        "error",
        "An answer whose id has another type",
        '1 and "1" are different ids, so this answers no request, and the client waits in vain.',
        "Return the id as it came, with its JSON type.",
    ),
    Rule(
        "answers-nothing",
        "FRM-8",
        "error",
        "An answer to no request",
        "There was no request with this id. The answer is dropped, and the request that it was for waits in vain.",
        "Return the id of the request that is answered.",
    ),
    Rule(
        "answered-twice",
        "FRM-8",
        "error",
        "A second answer to a request",
        "A request has one answer. The second is dropped, or taken for the answer to another request.",
        "Answer each request once.",
    ),
    Rule(
        "idless-error",
        "FRM-7",
        "error",
        "An error without an id",
        "This revision has no errors without an id, and clients drop them.",
        "Only log a line whose id cannot be read.",
    ),
    # Answers
    Rule(
        "unanswered",
        "LIF-13",
        "error",
        "A request without an answer",
        "The input ended, and the server exited without answering what it had accepted.",
        "Answer all accepted requests before the exit.",
    ),
    Rule(
        "lost-request",
        "LIF-9",
        "error",
        "The server ended while it owed an answer",
        "The client cannot know whether the call took effect.",
        "Look at the lines of stderr before the exit.",
    ),
    Rule(
        "hanging-call",
        "CAN-5",
        "error",
        "A request that hangs",
        "For a minute there was no answer, no progress and no cancellation. A model that needs the answer waits, too.",
        "Find out what the server waits for; let the client have a timeout, and the server report progress.",
    ),
    Rule(
        "slow-call",
        "TAP-4",
        "warning",
        "A slow answer without progress",
        "Many clients give up after a time, and users do so sooner.",
        "Report progress, which also keeps clients from giving up, or do the work faster.",
    ),
    Rule(
        "crash",
        "LIF-14",
        "error",
        "The server ended on its own, with a failure",
        "The client had not ended the input.",
        "Look at the lines of stderr before the exit.",
    ),
    Rule(
        "ignores-end-of-input",
        "LIF-13",
        "warning",
        "The server did not exit at the end of its input",
        "Clients then kill it, which skips its cleanup, or leave it running.",
        "Exit when stdin ends.",
    ),
    # Cancellation and progress
    Rule(
        "after-cancellation",
        "CAN-2",
        "error",
        "A message for a cancelled request",
        "After a cancellation nothing more may be sent for that request; the client has forgotten it.",
        "Stop the work when the cancellation comes, and send neither a response nor progress.",
    ),
    Rule(
        "initialize-cancelled",
        "CAN-7",
        "error",
        "initialize is cancelled",
        "This request must not be cancelled: it would leave the session without a state.",
        "Close the connection instead.",
    ),
    Rule(
        "cancels-nothing",
        "CAN-1",
        "warning",
        "A cancellation of no request",
        "No request ever had this id, so the work goes on.",
        "Send the id of the request as it was sent, with its JSON type.",
    ),
    Rule(
        "server-cancels",
        "CAN-6",
        "error",
        "The server cancels a request of the client",
        "In the modern era a server may only end a subscription in this way.",
        "Answer the request with an error.",
    ),
    Rule(
        "unknown-progress",
        "PRG-1",
        "error",
        "Progress of no request",
        "No request has this progress token, so the progress is dropped.",
        "Send progress only for requests with a progress token, with that token.",
    ),
    Rule(
        "late-progress",
        "PRG-1",
        "error",
        "Progress after the answer",
        "Progress must stop when the request is answered; the client has forgotten the token.",
        "Send the last progress before the answer.",
    ),
    Rule(
        "progress-not-growing",
        "PRG-1",
        "error",
        "Progress that does not grow",
        "Each value must be larger than the one before. Clients drop other values, or show a bar that jumps.",
        "Count up.",
    ),
    # Eras
    Rule(
        "missing-metadata",
        "META-1",
        "error",
        "A request without its metadata",
        "In the modern era, each request carries the protocol version and the client's capabilities in _meta.",
        "Add them to every request: a server remembers nothing from earlier ones.",
    ),
    Rule(
        "missing-result-type",
        "DIR-4",
        "error",
        "A result without resultType",
        "In the modern era each result says whether it is complete.",
        'Add "resultType": "complete".',
    ),
    Rule(
        "unknown-result-type",
        "DIR-4",
        "error",
        "A result of an unknown type",
        "Clients take the result for invalid.",
        "Use the result types of the revision.",
    ),
    Rule(
        "server-request",
        "DIR-2",
        "error",
        "A request from a modern server",
        "A modern server sends no requests. Clients drop it, and the server waits in vain.",
        "Ask for input in the result (input_required).",
    ),
    Rule(
        "client-response",
        "DIR-1",
        "error",
        "A response from a modern client",
        "A modern client sends requests and notifications only.",
        "Send the input with the next request (inputResponses).",
    ),
    Rule(
        "wrong-era",
        "LEG-5",
        "error",
        "A method that the revision does not have",
        "The other side may not know it, and may end the session.",
        "Send only what the agreed revision has.",
    ),
    Rule(
        "before-initialize",
        "LEG-3",
        "error",
        "A request before initialize",
        "A legacy session begins with initialize, and a modern request carries its version. Servers refuse this one.",
        "Send initialize first, or the metadata of a modern request.",
    ),
    Rule(
        "not-initialized",
        "LEG-1",
        "error",
        "A session without notifications/initialized",
        "The handshake has three steps. Some servers answer nothing before the third.",
        "Send notifications/initialized after the answer to initialize.",
    ),
    Rule(
        "second-initialize",
        "LEG-1",
        "error",
        "A second initialize",
        "A session is initialized once.",
        "Open another session.",
    ),
    Rule(
        "bad-payload",
        "LEG-5",
        "error",
        "Params or a result of the wrong shape",
        "Clients and servers that check what they receive refuse it.",
        "Compare it with the schema of the revision.",
    ),
    Rule(
        "undeclared-capability",
        "LEG-1",
        "warning",
        "Use of a capability that the server did not declare",
        "Clients do not use undeclared features.",
        "Declare it at the server, or do not use it at the client.",
    ),
    # Subscriptions
    Rule(
        "not-acknowledged",
        "SUB-1",
        "error",
        "A subscription that is not acknowledged first",
        "The client does not know what it is subscribed to.",
        "Send notifications/subscriptions/acknowledged before anything else.",
    ),
    Rule(
        "unknown-subscription",
        "SUB-2",
        "error",
        "A notification of no subscription",
        "In the modern era, changes are announced only to subscribers, with the id of the subscription.",
        "Put the id of the open subscription into _meta, and send nothing without a subscription.",
    ),
    Rule(
        "not-subscribed",
        "SUB-2",
        "error",
        "A notification that the subscription does not include",
        "Only what was asked for may be sent.",
        "Compare each change with the filter of the subscription.",
    ),
    # Input
    Rule(
        "bad-input-required",
        "MRT-1",
        "error",
        "A result that must not ask for input, or asks for nothing",
        "Only tools/call, prompts/get and resources/read may ask, with input requests, a state, or both.",
        "Answer with a complete result.",
    ),
    Rule(
        "undeclared-input",
        "MRT-2",
        "error",
        "The server asks for what the client cannot give",
        "The client has not declared the capability, so it refuses or ignores the question.",
        "Ask only for what the client's capabilities include.",
    ),
    Rule(
        "unanswered-input",
        "MRT-4",
        "error",
        "A retry that does not answer all questions",
        "All input requests must be answered in the retry.",
        "Send a response for each key of inputRequests.",
    ),
    Rule(
        "changed-state",
        "MRT-4",
        "error",
        "A requestState that no server sent",
        "The state must be sent back unchanged, or not at all. The server refuses any other state.",
        "Treat it as an opaque string.",
    ),
    # Tools
    Rule(
        "tool-changed",
        "TAP-4",
        "warning",
        "A tool that changed without notice",
        "The model knows another description. Changing descriptions after the user's consent is also an attack.",
        "Announce changes with notifications/tools/list_changed, and read what changed.",
    ),
    Rule(
        "duplicate-tool",
        "TAP-4",
        "error",
        "Two tools of one name",
        "Clients can call only one of them.",
        "Give each tool its own name.",
    ),
    Rule(
        "unlisted-tool",
        "TAP-4",
        "warning",
        "A call of a tool that is not listed",
        "The client calls a tool that the server does not offer.",
        "List the tool, or find out why the client expects it.",
    ),
    Rule(
        "bad-tool-schema",
        "TAP-4",
        "error",
        "A tool with an unusable input schema",
        "Clients and LLM providers refuse the tool, and some all tools of the server.",
        'Give it an inputSchema of "type": "object".',
    ),
    Rule(
        "missing-structured-content",
        "TAP-4",
        "error",
        "A result without the structured content that its tool promises",
        "The tool has an outputSchema, so clients expect structuredContent, and some fail without it.",
        "Return structuredContent, or declare no outputSchema.",
    ),
    # HTTP
    Rule(
        "bad-body",
        "HTP-1",
        "error",
        "A body that is not a message",
        "The body of a request, that of a response in JSON and the data of an event are one message each.",
        "Send the message as JSON, and give pages for people another content type.",
    ),
    Rule(
        "header-mismatch",
        "HTP-2",
        "error",
        "Headers that differ from the body",
        "Modern requests repeat the version, the method and the name in headers; servers refuse a mismatch.",
        "Write the headers from the body.",
    ),
    Rule(
        "notification-status",
        "HTP-1",
        "error",
        "A notification that is not answered with 202",
        "Clients take other answers for a failure.",
        "Answer an accepted notification with 202 and no body.",
    ),
    Rule(
        "wrong-status",
        "HTP-5",
        "error",
        "An error with the wrong status",
        "Gateways and clients act on the status.",
        "Use the status that the protocol gives to the error.",
    ),
    Rule(
        "wrong-content-type",
        "HTP-1",
        "error",
        "A response of a type that is not allowed",
        "A request is answered with application/json or text/event-stream.",
        "Set the content type.",
    ),
    Rule(
        "missing-challenge",
        "AUT-11",
        "error",
        "A 401 without a challenge",
        "The client cannot find out where to sign in.",
        "Add WWW-Authenticate with resource_metadata.",
    ),
    # The recording
    Rule(
        "lost-records",
        "TAP-2",
        "note",
        "The recording is not complete",
        "What depends on the missing records is not checked from there on.",
        "Record the session again, to a faster or emptier disk.",
    ),
)

#: All rules by their keys.
RULES: dict[str, Rule] = {rule.key: rule for rule in _ALL}

#: The keys of rules that may seem to be broken where a record is missing.
NEED_ALL_RECORDS = frozenset((
    "answered-twice", "answers-nothing", "before-initialize", "cancels-nothing", "changed-id", "changed-state",
    "client-response", "duplicate-id", "hanging-call", "lost-request", "missing-metadata", "not-acknowledged",
    "not-initialized", "second-initialize", "server-cancels", "server-request", "slow-call", "tool-changed",
    "unanswered", "unanswered-input", "unknown-progress", "unknown-subscription", "unlisted-tool",
))  # fmt: skip
