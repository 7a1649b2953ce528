// What the server answers as a chat completions service: the vendor's form, and the habits of local servers.
const base = (model) => ({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1700000000, model });
const data = (json) => `data: ${JSON.stringify(json)}\n\n`;
const chunk = (model, delta, finish_reason = null) => data({ ...base(model), choices: [{ index: 0, delta, logprobs: null, finish_reason }] });
const usage = (model) =>
  data({ ...base(model), choices: [], usage: { prompt_tokens: 30, completion_tokens: 12, total_tokens: 42, prompt_tokens_details: { cached_tokens: 10 } } });
const done = "data: [DONE]\n\n";
const role = (model) => chunk(model, { role: "assistant", content: "" });

const simple = (model, reason = "stop") => ({
  events: role(model) + chunk(model, { content: "Hello " }) + chunk(model, { content: "wörld \u{1F30D}!" }) + chunk(model, {}, reason) + usage(model) + done,
  then: "end",
});
const call = (model, ...tool_calls) => chunk(model, { tool_calls });
const piece = (index, args, rest = {}) => ({ index, ...rest, function: { ...(rest.function ?? {}), arguments: args } });
const stream = (...parts) => ({ events: parts.join(""), then: "end" });
const onceThen = (refusal) => (body, count) => (count === 1 ? refusal : simple(body.model));

export const openaiScenarios = {
  text: ({ model }) => simple(model),
  tools: ({ model }) =>
    stream(role(model), chunk(model, { content: "I look." }),
      call(model, piece(0, "", { id: "call_a", type: "function", function: { name: "shell" } })),
      call(model, piece(0, '{"comm')), call(model, piece(0, 'and": "print é"}')),
      call(model, piece(1, "", { id: "call_b", type: "function", function: { name: "list" } })), call(model, piece(1, "{}")),
      chunk(model, {}, "tool_calls"), usage(model), done),
  "no-ids": ({ model }) =>
    stream(role(model), call(model, { index: 0, function: { name: "shell", arguments: '{"command":"a"}' } }),
      call(model, { index: 1, function: { name: "shell", arguments: '{"command":"b"}' } }), chunk(model, {}, "tool_calls"), done),
  // Every call whole, all with index 0, told apart by their ids; finish_reason "stop".
  "same-index": ({ model }) =>
    stream(role(model), call(model, { index: 0, id: "c1", type: "function", function: { name: "shell", arguments: '{"command":"a"}' } }),
      call(model, { index: 0, id: "c2", type: "function", function: { name: "shell", arguments: '{"command":"b"}' } }), chunk(model, {}, "stop"), done),
  "no-index-no-ids": ({ model }) =>
    stream(call(model, { function: { name: "shell", arguments: '{"command":"a"}' } }),
      call(model, { function: { name: "shell", arguments: '{"command":"b"}' } }), chunk(model, {}, "stop"), done),
  "object-arguments": ({ model }) =>
    stream(call(model, { index: 0, id: "c1", function: { name: "shell", arguments: { command: "a" } } }), chunk(model, {}, "tool_calls"), done),
  "double-encoded": ({ model }) =>
    stream(call(model, { index: 0, id: "c1", function: { name: "shell", arguments: JSON.stringify('{"command":"a"}') } }), chunk(model, {}, "tool_calls"), done),
  malformed: ({ model }) =>
    stream(call(model, piece(0, '{"command": "pri', { id: "c1", type: "function", function: { name: "shell" } })), chunk(model, {}, "tool_calls"), done),
  "no-done": ({ model }) => stream(role(model), chunk(model, { content: "all" }), chunk(model, {}, "stop")),
  "no-finish": ({ model }) => stream(role(model), chunk(model, { content: "all" }), done),
  reasoning: ({ model }) => stream(role(model), chunk(model, { reasoning_content: "hm " }), chunk(model, { reasoning_content: "hm" }), chunk(model, { content: "42" }), chunk(model, {}, "stop"), done),
  whole: ({ model }) => ({
    json: { ...base(model), object: "chat.completion", choices: [{ index: 0, message: { role: "assistant", content: "not streamed" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 } },
  }),
  "stop-stop": ({ model }) => simple(model, "stop"),
  "stop-length": ({ model }) => simple(model, "length"),
  "stop-content_filter": ({ model }) => simple(model, "content_filter"),
  "stop-something_new": ({ model }) => simple(model, "something_new"),
  unknown: ({ model }) => stream(": keep-alive\n\n", "event: extra\ndata: {\"object\":\"notice\"}\n\n", chunk(model, { role: "assistant", content: "ok", audio2: { x: 1 } }), chunk(model, {}, "stop"), done),
  "rate-limit-once": onceThen({ status: 429, type: "rate_limit_exceeded", message: "slow down", headers: { "retry-after-ms": "20" } }),
  "server-error-once": onceThen({ status: 503, type: "server_error", message: "loading", headers: { "retry-after-ms": "20" } }),
  "bad-key": () => ({ status: 401, type: "invalid_api_key", message: "Incorrect API key provided" }),
  "too-long": () => ({ status: 400, type: "context_length_exceeded", message: "This model's maximum context length is 8192 tokens." }),
  "error-midway": ({ model }, count) => (count === 1 ? stream(role(model), chunk(model, { content: "partly" }), data({ error: { message: "out of memory", type: "server_error" } })) : simple(model)),
  "drop-midway": ({ model }, count) => (count === 1 ? { events: role(model) + chunk(model, { content: "partly" }), then: "drop" } : simple(model)),
  "no-end": ({ model }) => ({ events: role(model) + chunk(model, { content: "and then" }), then: "hang" }),
  agent: ({ model, messages }) => {
    const last = messages[messages.length - 1];
    if (last.role !== "tool")
      return stream(role(model), call(model, piece(0, '{"command":"print from the guest"}', { id: "call_a", type: "function", function: { name: "shell" } })), chunk(model, {}, "tool_calls"), done);
    return stream(role(model), chunk(model, { content: "It said: " + last.content }), chunk(model, {}, "stop"), done);
  },
};

export function judgeOpenai(body, headers) {
  if (headers.authorization !== undefined && !/^Bearer \S+$/.test(headers.authorization)) return "authorization: malformed";
  if (!Array.isArray(body.messages) || body.messages.length === 0) return "messages: required";
  let open = [];
  for (const [index, message] of body.messages.entries()) {
    if (message.role === "tool") {
      if (!open.includes(message.tool_call_id)) return `messages.${index}: 'tool' must answer a preceding message with 'tool_calls'`;
      open = open.filter((id) => id !== message.tool_call_id);
      continue;
    }
    if (open.length > 0) return `messages.${index}: tool_call_ids did not have response messages: ${open}`;
    if (!["system", "developer", "user", "assistant"].includes(message.role)) return `messages.${index}.role: unknown`;
    if (message.role === "assistant") {
      for (const { id, type, function: fn } of message.tool_calls ?? []) {
        if (typeof id !== "string" || type !== "function" || typeof fn?.arguments !== "string") return `messages.${index}.tool_calls: malformed`;
        JSON.parse(fn.arguments);
        open.push(id);
      }
      if (message.content == null && !message.tool_calls) return `messages.${index}: content or tool_calls is required`;
    } else if (typeof message.content !== "string" && !Array.isArray(message.content)) return `messages.${index}.content: required`;
  }
  if (open.length > 0) return `tool_call_ids did not have response messages: ${open}`;
  return undefined;
}
