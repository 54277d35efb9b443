// Uses a server as a client written with version 2 of the official TypeScript SDK does, and reports what it saw.
//
// typescript_v2.mjs MODE COMMAND [ARGUMENT ...], where MODE is auto, legacy or a modern revision; instead of a command,
// the address of a server over HTTP, which ends in /sse for HTTP+SSE.

import { EventEmitter, once } from "node:events";

import { Client, LOG_LEVEL_META_KEY, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const NOTES = "interop://notes";
const LONGEST_MILLISECONDS = 50_000;
const [mode, command, ...args] = process.argv.slice(2);
const report = { complaints: [], asked: [], completions: [], progress: [] };
const seen = new EventEmitter();

setTimeout(() => {
  throw new Error(`Stuck after these were reported: ${Object.keys(report).join(", ")}`);
}, LONGEST_MILLISECONDS).unref();

const client = new Client(
  { name: "visitor", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: mode === "auto" || mode === "legacy" ? mode : { pin: mode } },
  },
);
client.onerror = (error) => report.complaints.push(String(error));
client.setRequestHandler("elicitation/create", ({ params }) => {
  report.asked.push(params.message);
  if (params.message.includes("cellar")) return { action: "decline" };
  const answers = { nights: 2, breakfast: true, sure: true };
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(fields.map((name) => [name, answers[name]])) };
});
client.setNotificationHandler("notifications/message", ({ params }) => {
  seen.emit("log", params.level, params.data);
});
client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
  seen.emit("change", params.uri);
});

const call = async (name, given = {}, options = {}) => {
  const result = await client.callTool({ name, arguments: given }, options);
  return { text: result.content.map((block) => block.text), error: result.isError ?? false };
};
const read = async (uri) => (await client.readResource({ uri })).contents[0];

const way = () => {
  if (!command.startsWith("http")) return new StdioClientTransport({ command, args });
  const url = new URL(command);
  return command.endsWith("/sse") ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
};
const transport = way();
await client.connect(transport);
const modern = client.getProtocolEra() === "modern";
const { name, version } = client.getServerVersion();
report.revision = client.getNegotiatedProtocolVersion();
report.server = [name, version];
report.instructions = client.getInstructions();

report.tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
report.greeting = await call("greet", { name: "Åse" });
const forecast = await client.callTool({ name: "forecast", arguments: { city: "Oslo", days: 2 } });
report.forecast = forecast.structuredContent;
report.refusal = await call("refuse", { reason: "The inn is full." });

report.resources = (await client.listResources()).resources.map((resource) => resource.uri).sort();
const { resourceTemplates } = await client.listResourceTemplates();
report.templates = resourceTemplates.map((template) => template.uriTemplate);
report.notes = (await read(NOTES)).text;
const picture = await read("interop://dot");
report.dot = [picture.mimeType, picture.blob];
report.city = (await read("interop://cities/Oslo")).text;
report.missing = await read("interop://nowhere").catch((error) => error.code);

report.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
const plan = await client.getPrompt({ name: "plan", arguments: { city: "Oslo" } });
report.plan = plan.messages.map((message) => [message.role, message.content.text]);

const ofPrompt = { type: "ref/prompt", name: "plan" };
const ofTemplate = { type: "ref/resource", uri: "interop://cities/{city}" };
for (const ref of [ofPrompt, ofTemplate]) {
  const { completion } = await client.complete({ ref, argument: { name: "city", value: "Os" } });
  report.completions.push(completion.values);
}

// The tool waits after its last step until another call lets it go on.
const lastStep = once(seen, "last step");
const onprogress = ({ progress, total, message }) => {
  report.progress.push([progress, total, message]);
  if (progress === total) seen.emit("last step");
};
const climb = call("climb", { steps: 3 }, { onprogress });
await lastStep;
await call("release");
report.climb = await climb;

report.booking = await call("book", { room: "the attic" });
report.declined = await call("book", { room: "the cellar" });

const logged = once(seen, "log");
if (!modern) await client.setLoggingLevel("info");
await client.callTool({
  name: "announce",
  arguments: { text: "Dinner is served." },
  ...(modern && { _meta: { [LOG_LEVEL_META_KEY]: "info" } }),
});
report.log = await logged;

const changed = once(seen, "change");
const listening = modern ? await client.listen({ resourceSubscriptions: [NOTES] }) : null;
if (!modern) await client.subscribeResource({ uri: NOTES });
await call("rewrite", { text: "Bring a hat." });
report.changes = [...(await changed), (await read(NOTES)).text];
await listening?.close();

report.timeout = await call("climb", { steps: 0 }, { timeout: 2000 }).catch(() => call("stopped"));

await transport.terminateSession?.();
client.onerror = undefined; // which would tell of the streams that are closed here
await client.close();
console.log(JSON.stringify(report));
