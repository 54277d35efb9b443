// What the clients that are written with the TypeScript SDKs share: each feature is tried by itself, within a time.

import { EventEmitter } from "node:events";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";

const NOTES = "interop://notes";
const TRACE = "interop/trace";
const ANSWERS = { nights: 2, breakfast: true, sure: true };

// Keeps what comes until somebody waits for it.
class Queue {
  #items = [];
  #news = new EventEmitter();

  put(item) {
    this.#items.push(item);
    this.#news.emit("item");
  }

  async get() {
    while (!this.#items.length) await new Promise((resolve) => this.#news.once("item", resolve));
    return this.#items.shift();
  }
}

let asked = [];
export const log = new Queue();
export const changes = new Queue();
export const listChanges = new Queue();

export const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

export function answerElicitation({ params }) {
  asked.push(params.message);
  if (params.mode === "url") {
    asked.push(params.url);
    return { action: "accept" };
  }
  if (params.message.includes("cellar")) return { action: "decline" };
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(fields.map((name) => [name, ANSWERS[name]])) };
}

export function answerSampling({ params }) {
  asked.push([params.messages[0].content].flat()[0].text);
  return { role: "assistant", content: { type: "text", text: "It is short." }, model: "interop-model" };
}

export const answerRoots = () => ({ roots: [{ uri: "file:///inn" }] });

// The names on all pages of a list.
async function pages(listPage) {
  const found = [];
  let cursor;
  do {
    const [names, next] = await listPage(cursor === undefined ? {} : { cursor });
    found.push(names);
    cursor = next;
  } while (cursor !== undefined);
  return found;
}

// Where the server and this client leave files for each other.
const newFolder = () => mkdtempSync(`${process.env.HOME}/hike-`);

async function existing(file) {
  while (!existsSync(file)) await new Promise((resolve) => setTimeout(resolve, 10));
}

const codeOf = (error) => {
  if (typeof error.code === "number") return error.code;
  throw error;
};

// Tries each feature, and prints what was observed: what its function returns, or how it failed. What differs between
// the SDKs: callTool(params, options), request(method, params), and listen(filter), which only a modern client has.
export async function observe(client, { callTool, request, listen }, seconds) {
  const call = async (name, given = {}, options = {}) => {
    const result = await callTool({ name, arguments: given }, options);
    const text = result.content.map((block) => block.text).join("\n");
    return result.isError ? `error: ${text}` : text;
  };
  const read = async (uri) => {
    const [part] = (await client.readResource({ uri })).contents;
    return part.text ?? part.blob;
  };
  const toolNames = async () => {
    const found = await pages(async (params) => {
      const { tools, nextCursor } = await client.listTools(params);
      return [tools.map((tool) => tool.name), nextCursor];
    });
    return found.flat();
  };

  const features = {
    introduction: () => [client.getServerVersion().name, client.getInstructions()],
    calls: () => call("greet", { name: "Åse" }),
    tool_errors: () => call("refuse", { reason: "The inn is full." }),
    protocol_errors: () => read("interop://nowhere").catch(codeOf),
    structured_content: async () =>
      (await callTool({ name: "forecast", arguments: { city: "Oslo", days: 2 } })).structuredContent,
    metadata: async () => (await callTool({ name: "sign", _meta: { [TRACE]: "Åse" } }))._meta?.[TRACE],
    resources: async () => {
      const found = await pages(async (params) => {
        const { resources, nextCursor } = await client.listResources(params);
        return [resources.map((resource) => resource.uri), nextCursor];
      });
      return [found.flat().sort(), await read(NOTES), await read("interop://dot")];
    },
    templates: async () => {
      const found = await pages(async (params) => {
        const { resourceTemplates, nextCursor } = await client.listResourceTemplates(params);
        return [resourceTemplates.map((template) => template.uriTemplate), nextCursor];
      });
      return [found.flat(), await read("interop://cities/Oslo")];
    },
    prompts: async () => {
      const plan = await client.getPrompt({ name: "plan", arguments: { city: "Oslo" } });
      return plan.messages.map((message) => [message.role, message.content.text]);
    },
    // Version 2 of the SDK collects all pages unless it is given a cursor: it is asked for the second one itself.
    pagination: () =>
      pages(async (params) => {
        const { prompts, nextCursor } = await request("prompts/list", params);
        return [prompts.map((prompt) => prompt.name), nextCursor];
      }),
    completion: async () => {
      const references = [
        { type: "ref/prompt", name: "plan" },
        { type: "ref/resource", uri: "interop://cities/{city}" },
      ];
      const found = [];
      for (const ref of references) {
        const { completion } = await client.complete({ ref, argument: { name: "city", value: "Os" } });
        found.push(completion.values);
      }
      return found;
    },
    extension_methods: async () => (await request("interop/echo", { text: "Åse" }).catch((error) => ({ echo: codeOf(error) }))).echo,
    logs: async () => {
      const level = listen ? { _meta: { "io.modelcontextprotocol/logLevel": "info" } } : {};
      if (!listen) await client.setLoggingLevel("info");
      await callTool({ name: "announce", arguments: { text: "Dinner is served." }, ...level });
      return log.get();
    },
    subscriptions: async () => {
      const listening = await listen?.({ resourceSubscriptions: [NOTES] });
      if (!listen) await client.subscribeResource({ uri: NOTES });
      await call("rewrite", { text: "Bring a hat." });
      const seen = [await changes.get(), await read(NOTES)];
      await listening?.close();
      return seen;
    },
    list_changes: async () => {
      const before = (await toolNames()).includes("drink");
      const listening = await listen?.({ toolsListChanged: true });
      await call("open_bar");
      await listChanges.get();
      await listening?.close();
      return [before, (await toolNames()).includes("drink")];
    },
    forms: async () => {
      asked = [];
      const booked = [await call("book", { room: "the attic" }), await call("book", { room: "the cellar" })];
      return [asked, booked];
    },
    urls: async () => {
      asked = [];
      return [await call("pay"), asked];
    },
    sampling: async () => {
      asked = [];
      return [await call("summarize", { text: "a long text" }), asked];
    },
    roots: () => call("look_around"),
    cancellation: async () => {
      const folder = newFolder();
      const gaveUp = new AbortController();
      const hike = call("hike", { steps: 0, folder }, { signal: gaveUp.signal }).catch(() => {});
      await existing(`${folder}/begun`);
      gaveUp.abort();
      await hike;
      await existing(`${folder}/stopped`);
      return "stopped";
    },
    progress: async () => {
      const steps = [];
      const lastStep = new Queue();
      const onprogress = ({ progress, total, message }) => {
        steps.push([progress, total, message]);
        if (progress === total) lastStep.put(progress);
      };
      const folder = newFolder();
      const hike = call("hike", { steps: 3, folder }, { onprogress });
      hike.catch(() => {}); // it may fail when nobody waits for it any more
      await lastStep.get();
      writeFileSync(`${folder}/home`, "");
      return [steps, await hike];
    },
  };

  const observed = {};
  for (const [name, attempt] of Object.entries(features)) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`nothing came within ${seconds} s`)), seconds * 1000);
    });
    try {
      observed[name] = (await Promise.race([attempt(), late])) ?? null;
    } catch (error) {
      observed[name] = { failed: `${error.message}` };
    }
    clearTimeout(timer);
  }
  await new Promise((resolve) => process.stdout.write(`${JSON.stringify(observed)}\n`, resolve));
}
