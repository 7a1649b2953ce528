// The official clients against our test server: what they accept as the real wire, our own client is tested against.
// Usage: node sdk_test.mjs FOLDER_WITH_NODE_MODULES. Exit status 77: skipped, with the reason on standard output.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const modules = process.argv[2];

const reason = path.join(modules, "skipped");
if (existsSync(reason)) {
  console.log("SKIPPED: the official clients are not tested: " + readFileSync(reason, "utf8"));
  process.exit(77);
}
const load = createRequire(path.join(modules, "x.js"));
const { default: OpenAI } = load("openai");
// The generation that speaks version 2023-06-01 of the API, as we do, and the current one.
const generations = { "2023-06-01": load("anthropic-sdk-2023-06-01").default, current: load("@anthropic-ai/sdk").default };

const server = spawn(process.execPath, [path.join(here, "server.mjs")], { stdio: ["pipe", "pipe", "inherit"] });
const [line] = await once(server.stdout, "data");
const url = `http://127.0.0.1:${String(line).trim()}`;

const tools = [{ name: "shell", description: "x", input_schema: { type: "object" } }];
const openaiAt = (baseURL) => new OpenAI({ apiKey: "key", baseURL: baseURL + "/v1" });
const chat = (model, baseURL = url, messages = [{ role: "user", content: "hi" }]) =>
  openaiAt(baseURL).chat.completions.stream({ model, messages, stream_options: { include_usage: true } }).finalChatCompletion();

const anthropicCases = (name, Anthropic) => {
  const ask = (model, baseURL = url, messages = [{ role: "user", content: "hi" }]) =>
    new Anthropic({ apiKey: "key", baseURL }).messages.stream({ model, max_tokens: 100, messages, tools }).finalMessage();
  return {
    async "text and usage, whole and byte by byte"() {
      for (const at of [url, url + "/split1", url + "/split7"]) {
        const message = await ask("text", at);
        assert.deepEqual(message.content, [{ type: "text", text: "Hello wörld \u{1F30D}!" }]);
        assert.equal(message.stop_reason, "end_turn");
        assert.equal(message.usage.output_tokens, 15);
        assert.equal(message.usage.input_tokens, 25);
      }
    },
    async "thinking with its signature"() {
      const message = await ask("thinking");
      assert.equal(message.content[0].thinking, "Let me see… \u{1F9EE}");
      assert.match(message.content[0].signature, /^EqQB/);
    },
    async "tool calls"() {
      const message = await ask("tools");
      assert.equal(message.stop_reason, "tool_use");
      assert.deepEqual(message.content.slice(1).map((part) => part.input), [{ command: "print é" }, {}]);
    },
    async "unknown events pass"() {
      const types = [];
      for await (const event of await new Anthropic({ apiKey: "key", baseURL: url }).messages.create({ model: "unknown", max_tokens: 10, stream: true, messages: [{ role: "user", content: "x" }] })) types.push(event.type);
      assert.ok(types.includes("message_stop"));
    },
    async "every stop reason"() {
      for (const stop of ["end_turn", "max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"])
        assert.equal((await ask("stop-" + stop)).stop_reason, stop);
    },
    async "refusals that are tried again, and their kinds"() {
      for (const scenario of ["rate-limit-once", "overloaded-once", "server-error-once"])
        assert.equal((await ask(scenario + "#" + name)).stop_reason, "end_turn");
      await assert.rejects(ask("told-not-to-retry#" + name), (error) => error.status === 529);
      await assert.rejects(ask("always-overloaded#" + name), (error) => error instanceof Anthropic.APIError && error.error.error.type === "overloaded_error");
      await assert.rejects(ask("bad-key"), Anthropic.AuthenticationError);
      await assert.rejects(ask("too-long"), Anthropic.BadRequestError);
    },
    async "errors after 200, and broken connections"() {
      await assert.rejects(ask("error-midway#" + name), Anthropic.APIError);
      await assert.rejects(ask("error-at-once#" + name), Anthropic.APIError);
      await assert.rejects(ask("drop-midway#" + name));
      await assert.rejects(ask("garbage"));
    },
    async "a conversation with a tool result"() {
      const first = await ask("agent");
      const second = await ask("agent", url, [{ role: "user", content: "hi" }, { role: "assistant", content: first.content },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "hello" }] }]);
      assert.equal(second.content[0].text, "It said: hello");
    },
    async "what the service would refuse is refused"() {
      await assert.rejects(ask("text", url, [{ role: "user", content: [{ type: "text", text: "" }] }]), Anthropic.BadRequestError);
      const first = await ask("agent");
      await assert.rejects(ask("text", url, [{ role: "user", content: "hi" }, { role: "assistant", content: first.content }]), /without tool_result/);
    },
  };
};

const openaiCases = {
  async "openai: text and usage, whole and byte by byte"() {
    for (const at of [url, url + "/split1", url + "/split7"]) {
      const done = await chat("text", at);
      assert.equal(done.choices[0].message.content, "Hello wörld \u{1F30D}!");
      assert.equal(done.choices[0].finish_reason, "stop");
      assert.equal(done.usage.prompt_tokens, 30);
    }
  },
  async "openai: tool calls"() {
    const calls = (await chat("tools")).choices[0].message.tool_calls;
    assert.deepEqual(calls.map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]),
      [["call_a", "shell", { command: "print é" }], ["call_b", "list", {}]]);
  },
  async "openai: refusals, and errors after 200"() {
    assert.equal((await chat("rate-limit-once#sdk")).choices[0].finish_reason, "stop");
    assert.equal((await chat("server-error-once#sdk")).choices[0].finish_reason, "stop");
    await assert.rejects(chat("bad-key"), OpenAI.AuthenticationError);
    await assert.rejects(chat("too-long"), (error) => error.code === "context_length_exceeded");
    await assert.rejects(chat("error-midway#sdk"), OpenAI.APIError);
    await assert.rejects(chat("drop-midway#sdk"));
  },
  async "openai: a conversation with a tool result"() {
    const done = await chat("agent", url, [{ role: "user", content: "hi" },
      { role: "assistant", content: null, tool_calls: [{ id: "call_a", type: "function", function: { name: "shell", arguments: "{}" } }] },
      { role: "tool", tool_call_id: "call_a", content: "hello" }]);
    assert.equal(done.choices[0].message.content, "It said: hello");
  },
};

const cases = { ...openaiCases };
for (const [generation, Anthropic] of Object.entries(generations)) {
  for (const [name, run] of Object.entries(anthropicCases(generation, Anthropic))) cases[`anthropic ${generation}: ${name}`] = run;
}
let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log("ok     " + name);
  } catch (error) {
    failed++;
    console.log("FAILED " + name + "\n" + error.stack);
  }
}
server.stdin.end();
console.log(`${Object.keys(cases).length - failed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
