// The test server, written with version 2 of the official TypeScript SDK.

import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { pipeline, Readable } from "node:stream";
import { setTimeout } from "node:timers/promises";

import {
  acceptedContent,
  completable,
  createMcpHandler,
  inputRequired,
  isLegacyRequest,
  McpServer,
  ResourceTemplate,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const NOTES = "interop://notes";
const CITIES = ["Oslo", "Osaka", "Paris"];
const Stay = z.object({ nights: z.number().int(), breakfast: z.boolean() });

const [way = "stdio", port, full] = process.argv.slice(2);
const isFull = full === "full";
const pages = { [NOTES]: "Bring a coat." };
const seen = new EventEmitter().setMaxListeners(0);
let stops = 0;
let hasBar = false;

const text = (said) => ({ content: [{ type: "text", text: said }] });
const complete = (value) => CITIES.filter((city) => city.startsWith(value));

function open() {
  const server = new McpServer(
    { name: "inn", version: "1.0.0" },
    { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: "A small inn, for trying clients." },
  );

  server.registerTool("greet", { inputSchema: z.object({ name: z.string() }) }, ({ name }) => text(`Hello, ${name}!`));

  server.registerTool(
    "forecast",
    {
      inputSchema: z.object({ city: z.string(), days: z.number().int().default(3) }),
      outputSchema: z.object({ city: z.string(), celsius: z.array(z.number().int()) }),
    },
    ({ city, days }) => {
      const structuredContent = { city, celsius: [...Array(days).keys()] };
      return { ...text(JSON.stringify(structuredContent)), structuredContent };
    },
  );

  server.registerTool("refuse", { inputSchema: z.object({ reason: z.string() }) }, ({ reason }) => {
    throw new Error(reason);
  });

  // Reports each step, and then waits for "release".
  server.registerTool("climb", { inputSchema: z.object({ steps: z.number().int() }) }, async ({ steps }, { mcpReq }) => {
    for (let step = 1; step <= steps; step++) {
      if (mcpReq._meta?.progressToken === undefined) break;
      const params = { progressToken: mcpReq._meta.progressToken, progress: step, total: steps, message: `step ${step}` };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    mcpReq.signal.addEventListener("abort", () => {
      stops++;
      seen.emit("stop");
    });
    await once(seen, "release", { signal: mcpReq.signal });
    return text(`climbed ${steps} steps`);
  });

  server.registerTool("release", {}, () => {
    seen.emit("release");
    return text("released");
  });

  // Says so when a climb has been cancelled.
  server.registerTool("stopped", {}, async () => {
    if (!stops) await once(seen, "stop");
    stops = 0;
    return text("stopped");
  });

  server.registerTool("book", { inputSchema: z.object({ room: z.string() }) }, ({ room }, { mcpReq }) => {
    const answer = mcpReq.inputResponses?.stay;
    if (answer === undefined) {
      const stay = inputRequired.elicit({ message: `How long do you stay in ${room}?`, requestedSchema: Stay });
      return inputRequired({ inputRequests: { stay } });
    }
    const stay = acceptedContent(mcpReq.inputResponses, "stay", Stay);
    return text(`${room}: ${stay ? `${stay.nights} nights, breakfast ${stay.breakfast}` : answer.action}`);
  });

  server.registerTool("announce", { inputSchema: z.object({ text: z.string() }) }, async ({ text: data }, { mcpReq }) => {
    await mcpReq.log("info", data);
    return text("announced");
  });

  server.registerTool("rewrite", { inputSchema: z.object({ text: z.string() }) }, async ({ text: said }) => {
    pages[NOTES] = said;
    await announceChange(server);
    return text("rewritten");
  });

  server.registerResource("notes", NOTES, {}, ({ href }) => ({ contents: [{ uri: href, text: pages[NOTES] }] }));
  server.registerResource("dot", "interop://dot", { mimeType: "image/png" }, ({ href }) => ({
    contents: [{ uri: href, mimeType: "image/png", blob: "iVBORw0K" }],
  }));
  const cities = new ResourceTemplate("interop://cities/{city}", { list: undefined, complete: { city: complete } });
  server.registerResource("cities", cities, {}, ({ href }, { city }) => ({
    contents: [{ uri: href, text: `${city} is a city.` }],
  }));

  server.registerPrompt("plan", { argsSchema: z.object({ city: completable(z.string(), complete) }) }, ({ city }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Plan a day in ${city}.` } }],
  }));

  // The older revisions subscribe with these. All changes are sent to everyone.
  server.server.setRequestHandler("resources/subscribe", () => ({}));
  server.server.setRequestHandler("resources/unsubscribe", () => ({}));
  if (isFull) addMore(server);
  return server;
}

// Adds what the table of the bridge needs, too. The full server is modern only.
function addMore(server) {
  // Reports each step, and then waits for a file: the next call may go to another process of the server.
  server.registerTool("hike", { inputSchema: z.object({ steps: z.number().int(), folder: z.string() }) }, async ({ steps, folder }, { mcpReq }) => {
    for (let step = 1; step <= steps; step++) {
      if (mcpReq._meta?.progressToken === undefined) break;
      const params = { progressToken: mcpReq._meta?.progressToken, progress: step, total: steps, message: `step ${step}` };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    writeFileSync(`${folder}/begun`, "");
    // Without the folder, everybody has gone.
    while (existsSync(folder) && !existsSync(`${folder}/home`)) {
      await setTimeout(10);
      if (mcpReq.signal.aborted) {
        writeFileSync(`${folder}/stopped`, "");
        throw new Error("stopped");
      }
    }
    return text(`hiked ${steps} steps`);
  });

  server.registerTool("pay", {}, ({ mcpReq }) => {
    const answer = mcpReq.inputResponses?.page;
    if (answer !== undefined) return text(`payment: ${answer.action}`);
    const page = inputRequired.elicitUrl({ message: "Pay for the room.", url: "https://inn.example/pay" });
    return inputRequired({ inputRequests: { page } });
  });

  server.registerTool("summarize", { inputSchema: z.object({ text: z.string() }) }, ({ text: said }, { mcpReq }) => {
    const answer = mcpReq.inputResponses?.summary;
    if (answer !== undefined) return text(`${answer.model}: ${answer.content.text}`);
    const content = { type: "text", text: `Summarize: ${said}` };
    const summary = inputRequired.createMessage({ messages: [{ role: "user", content }], maxTokens: 100 });
    return inputRequired({ inputRequests: { summary } });
  });

  server.registerTool("look_around", {}, ({ mcpReq }) => {
    const answer = mcpReq.inputResponses?.roots;
    if (answer !== undefined) return text(answer.roots.map((root) => root.uri).join(" "));
    return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
  });

  const addDrink = () => server.registerTool("drink", {}, () => text("Cheers!"));
  if (hasBar) addDrink();
  server.registerTool("open_bar", {}, async () => {
    hasBar = true;
    await announceTool(addDrink);
    return text("open");
  });

  server.registerTool("sign", {}, ({ mcpReq }) => ({
    content: [],
    _meta: { "interop/trace": mcpReq._meta?.["interop/trace"] },
  }));

  server.server.setRequestHandler("prompts/list", ({ params }) => {
    if (params?.cursor === "page 2") return { prompts: [{ name: "pack" }] };
    return { prompts: [{ name: "plan", arguments: [{ name: "city", required: true }] }], nextCursor: "page 2" };
  });
  const echo = { params: z.object({ text: z.string() }), result: z.object({ echo: z.string() }) };
  server.server.setRequestHandler("interop/echo", echo, (params) => ({ echo: params.text }));
}

const sessions = new Map();

// Legacy clients with a session each: one way that its documentation shows, beside the stateless one.
async function serveSession(request) {
  const id = request.headers.get("mcp-session-id");
  if (id !== null && !sessions.has(id)) return new Response(null, { status: 404 });
  let transport = sessions.get(id);
  if (transport === undefined) {
    transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (each) => sessions.set(each, transport),
      onsessionclosed: (each) => sessions.delete(each),
    });
    await open().connect(transport);
  }
  return transport.handleRequest(request);
}

// What @modelcontextprotocol/node would do.
async function answer(request, response, serve) {
  console.log(request.method, request.url);
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const answered = await serve(
    new Request(`http://${request.headers.host}${request.url}`, {
      method: request.method,
      headers: request.headers,
      body: request.method === "POST" ? Readable.toWeb(request) : undefined,
      duplex: "half",
      signal: gone.signal,
    }),
  );
  response.writeHead(answered.status, Object.fromEntries(answered.headers));
  response.flushHeaders();
  if (answered.body === null) response.end();
  else pipeline(Readable.fromWeb(answered.body), response, () => {});
}

let announceChange = (server) => server.server.sendResourceUpdated({ uri: NOTES });
// A server with a connection announces its new tools by itself.
let announceTool = (addTool) => addTool();

if (way === "stdio") {
  serveStdio(open, { legacy: isFull ? "reject" : "serve" });
} else {
  const modern = createMcpHandler(open, { legacy: isFull || way === "http-sessions" ? "reject" : "stateless" });
  const hasSession = async (request) => way === "http-sessions" && (await isLegacyRequest(request));
  const serve = async (request) => ((await hasSession(request)) ? serveSession(request) : modern.fetch(request));
  const announceInSession = announceChange;
  announceChange = async (server) => {
    modern.notify.resourceUpdated(NOTES);
    if (way === "http-sessions") await announceInSession(server);
  };
  announceTool = () => modern.notify.toolsChanged();
  createServer((request, response) => answer(request, response, serve)).listen(Number(port), "127.0.0.1", () => {
    console.log(`Listening on port ${port}`);
  });
}
