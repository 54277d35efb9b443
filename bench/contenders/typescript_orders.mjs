// What a measured client is told to do, as in orders.py: a line of words, answered with a line of seconds.

import { createInterface } from "node:readline";

const seconds = () => performance.now() / 1000;
const [era, command, ...args] = process.argv.slice(2);
const tell = (times) => process.stdout.write(`${times.join(" ")}\n`);

// Launches the server with what `connect` gives: a function that calls a tool, and one that ends all.
export async function obey(connect) {
  const started = seconds();
  const { call, close } = await connect(era, { command, args });

  const echo = async (text) => {
    const began = seconds();
    const { content } = await call("echo", { text });
    const took = seconds() - began;
    if (content.length !== 1 || content[0].text !== text) throw new Error(`It should have been ${text.slice(0, 100)}`);
    return took;
  };
  const work = {
    async alone(count) {
      const times = [];
      for (let number = 0; number < count; number++) times.push(await echo(`hello from call ${number}`));
      return times;
    },
    // As many callers as the window is wide, each of which calls again as soon as it has its result.
    async in_flight(count, window) {
      let number = 0;
      const callOn = async () => {
        while (number < count) await echo(`hello from call ${number++}`);
      };
      const began = seconds();
      await Promise.all(Array.from({ length: window }, callOn));
      return [seconds() - began];
    },
    large: async (size) => [await echo("x".repeat(size))],
  };

  await echo("hello from call 0");
  tell([seconds() - started]);
  for await (const line of createInterface({ input: process.stdin })) {
    const [what, ...numbers] = line.split(" ");
    tell(await work[what](...numbers.map(Number)));
  }
  await close();
}
